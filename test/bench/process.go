package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Use is what a process has used since it began.
type Use struct {
	CPU      time.Duration
	Switches int64 // context switches of its threads, wanted or not
}

// tick is the unit of CPU time in /proc.
const tick = 10 * time.Millisecond

// use reads what a process has used.
func use(pid int) (Use, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Use{}, fmt.Errorf("read use of process %d: %w", pid, err)
	}
	// The command in parentheses may hold anything; what follows is plain.
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(f) < 13 {
		return Use{}, fmt.Errorf("read use of process %d: unexpected stat %q", pid, data)
	}
	var u Use
	for _, field := range f[11:13] { // user and system
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Use{}, fmt.Errorf("read use of process %d: %w", pid, err)
		}
		u.CPU += time.Duration(n) * tick
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return Use{}, err
	}
	for _, t := range tasks {
		for _, name := range []string{"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"} {
			n, err := statusField(t, name)
			if os.IsNotExist(err) {
				break // the thread ended
			}
			if err != nil {
				return Use{}, err
			}
			u.Switches += n
		}
	}
	return u, nil
}

// resident is the memory a process holds, in MiB.
func resident(pid int) (float64, error) {
	n, err := statusField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	return float64(n) / 1024, err
}

// fromDisk has a program read from the disk when it starts, as after a boot. One
// that was just written lies in memory in pieces of up to 2 MiB, each of which a
// process maps, and seems to hold, as a whole.
func fromDisk(program string) error {
	f, err := os.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write %s to the disk: %w", program, err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("forget %s: %w", program, err)
	}
	return nil
}

// statusField is a number of a status file of /proc.
func statusField(file, name string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s of %s: %w", name, file, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read %s: no field %s", file, name)
}
