package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Use is the resource usage of a process since its start.
type Use struct {
	CPU      time.Duration
	Switches int64 // context switches of its threads, voluntary or not
}

// use adds the usage of the threads of a process. The stat file of the process counts in hundredths of a second, which
// is too coarse for an idle process. The schedstat files of its threads count in nanoseconds. The threads of a Go
// program hardly ever end, so hardly any usage is missed.
func use(pid int) (Use, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return Use{}, err
	}
	if len(tasks) == 0 {
		return Use{}, fmt.Errorf("read use of process %d: it is not there", pid)
	}
	var u Use
	for _, t := range tasks {
		one, err := threadUse(t)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread ended
		}
		if err != nil {
			return Use{}, fmt.Errorf("read use of process %d: %w", pid, err)
		}
		u.CPU += one.CPU
		u.Switches += one.Switches
	}
	return u, nil
}

func threadUse(dir string) (Use, error) {
	data, err := os.ReadFile(filepath.Join(dir, "schedstat")) // nanoseconds on a CPU first
	if err != nil {
		return Use{}, err
	}
	ran, _, _ := strings.Cut(string(data), " ")
	ns, err := strconv.ParseInt(ran, 10, 64)
	if err != nil {
		return Use{}, err
	}
	u := Use{CPU: time.Duration(ns)}
	for _, name := range []string{"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"} {
		n, err := statusField(filepath.Join(dir, "status"), name)
		if err != nil {
			return Use{}, err
		}
		u.Switches += n
	}
	return u, nil
}

// resident returns the resident memory of a process in MiB.
func resident(pid int) (float64, error) {
	n, err := statusField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	return float64(n) / 1024, err
}

// fromDisk removes a program from the page cache, so that it is read from the disk when it starts, as after a boot. A
// program that was just written is cached in pieces of up to 2 MiB. A process maps such a piece as a whole, and it all
// counts as resident memory.
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

// statusField returns a number from a status file in /proc.
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
