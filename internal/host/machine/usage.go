package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is the state of the machine's memory, in bytes.
type Memory struct {
	Total, Free, InactiveFile, SwapTotal, SwapFree uint64
}

// Available returns free memory and inactive page cache: the total minus the working set of all processes.
func (m Memory) Available() uint64 { return min(m.Free+m.InactiveFile, m.Total) }

// ReadMemory reads /proc/meminfo.
func ReadMemory(fsys fs.FS) (Memory, error) {
	text, err := fs.ReadFile(fsys, "proc/meminfo")
	if err != nil {
		return Memory{}, fmt.Errorf("read memory: %w", err)
	}
	return parseMemory(string(text))
}

func parseMemory(text string) (Memory, error) {
	var m Memory
	fields := map[string]*uint64{
		"MemTotal":       &m.Total,
		"MemFree":        &m.Free,
		"Inactive(file)": &m.InactiveFile,
		"SwapTotal":      &m.SwapTotal,
		"SwapFree":       &m.SwapFree,
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		into, ok := fields[key]
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		kb, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 54)
		if err != nil {
			return Memory{}, fmt.Errorf("read memory: %s is not a number of kB: %q", key, value)
		}
		*into = kb << 10
	}
	if m.Total == 0 {
		return Memory{}, errors.New("read memory: proc/meminfo has no MemTotal")
	}
	return m, nil
}

// ReadPIDs returns the number of processes and threads.
func ReadPIDs(fsys fs.FS) (int64, error) {
	text := first(fsys, "proc/loadavg")
	// 0.42 0.31 0.30 2/345 6789: the fourth field is running/existing.
	if f := strings.Fields(text); len(f) >= 4 {
		_, all, _ := strings.Cut(f[3], "/")
		if n, err := strconv.ParseInt(all, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("count processes: unexpected proc/loadavg %q", text)
}

// Filesystem is the usage of a file system. Available excludes blocks that are reserved for root.
type Filesystem struct {
	Free                uint64 // bytes, including reserved blocks
	Capacity, Available uint64 // bytes
	Inodes, InodesFree  uint64 // 0 if inodes are allocated on demand
}

// ReadFilesystem returns the usage of the file system of path.
func ReadFilesystem(path string) (Filesystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Filesystem{}, fmt.Errorf("read file system of %s: %w", path, err)
	}
	block := uint64(st.Frsize)
	if block == 0 {
		block = uint64(st.Bsize)
	}
	return Filesystem{
		Free:       st.Bfree * block,
		Capacity:   st.Blocks * block,
		Available:  st.Bavail * block,
		Inodes:     st.Files,
		InodesFree: st.Ffree,
	}, nil
}

// ReadPressure returns the pressure stall information of cpu, memory or io. It is empty if accounting is disabled.
func ReadPressure(fsys fs.FS, of string) string {
	return first(fsys, "proc/pressure/"+of)
}

// SwapUsed returns the used swap in bytes.
func (m Memory) SwapUsed() uint64 { return m.SwapTotal - min(m.SwapFree, m.SwapTotal) }

// BootTime returns the time of the boot.
func BootTime(fsys fs.FS, now time.Time) (time.Time, error) {
	text := first(fsys, "proc/uptime")
	up, _, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read proc/uptime: %q is not a number of seconds", up)
	}
	return now.Add(-time.Duration(seconds * float64(time.Second))), nil
}

// ReadCPUTime returns the CPU time of all processors since the boot.
func ReadCPUTime(fsys fs.FS) (time.Duration, error) {
	t, err := readProcessors(fsys)
	return t.all - t.idle - t.waiting, err
}

// ReadIdleTime returns the idle time of all processors since the boot, including that of nice processes, and their
// total time. Waiting for I/O does not count as idle.
func ReadIdleTime(fsys fs.FS) (idle, all time.Duration, err error) {
	t, err := readProcessors(fsys)
	return t.idle + t.nice, t.all, err
}

// processors are sums over all processors.
type processors struct{ all, nice, idle, waiting time.Duration }

// readProcessors reads the times of processors. Guest time is included in user time.
func readProcessors(fsys fs.FS) (processors, error) {
	text := first(fsys, "proc/stat")
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return processors{}, fmt.Errorf("read proc/stat: the first line is %q", line)
	}
	var t processors
	parts := [8]*time.Duration{1: &t.nice, 3: &t.idle, 4: &t.waiting}
	for i, part := range parts {
		n, err := strconv.ParseInt(f[1+i], 10, 64)
		if err != nil {
			return processors{}, fmt.Errorf("read proc/stat: %q is not a number", f[1+i])
		}
		d := time.Duration(n) * time.Second / 100 // ticks, the same everywhere
		t.all += d
		if part != nil {
			*part = d
		}
	}
	return t, nil
}
