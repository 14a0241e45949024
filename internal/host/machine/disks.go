package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// Disk is the I/O of a disk since the boot.
type Disk struct {
	Major, Minor                         int
	Reads, ReadsMerged, SectorsRead      uint64
	Writes, WritesMerged, SectorsWritten uint64
	InProgress                           uint64
	ReadTime, WriteTime                  time.Duration
	BusyTime, WeightedTime               time.Duration
}

// ReadDisks reads the I/O of disks by device, such as /dev/sda1.
func ReadDisks(fsys fs.FS) (map[string]Disk, error) {
	text, err := fs.ReadFile(fsys, "proc/diskstats")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read disks: %w", err)
	}
	return parseDisks(string(text)), nil
}

// parseDisks parses /proc/diskstats: major, minor, name and at least eleven numbers.
func parseDisks(text string) map[string]Disk {
	out := map[string]Disk{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 14 {
			continue
		}
		n := func(i int) uint64 {
			v, err := strconv.ParseUint(f[3+i], 10, 64)
			if err != nil {
				return 0 // the kernel writes numbers
			}
			return v
		}
		var at [2]int
		for i := range at {
			at[i], _ = strconv.Atoi(f[i]) // the kernel writes numbers
		}
		ms := func(i int) time.Duration { return time.Duration(n(i)) * time.Millisecond }
		out["/dev/"+f[2]] = Disk{
			Major:          at[0],
			Minor:          at[1],
			Reads:          n(0),
			ReadsMerged:    n(1),
			SectorsRead:    n(2),
			ReadTime:       ms(3),
			Writes:         n(4),
			WritesMerged:   n(5),
			SectorsWritten: n(6),
			WriteTime:      ms(7),
			InProgress:     n(8),
			BusyTime:       ms(9),
			WeightedTime:   ms(10),
		}
	}
	return out
}

// DeviceName returns the name of a block device, such as /dev/sda. It is empty if the device does not exist.
func DeviceName(fsys fs.FS, major, minor uint64) string {
	text := first(fsys, path.Join("sys/dev/block", fmt.Sprintf("%d:%d", major, minor), "uevent"))
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			return "/dev/" + name
		}
	}
	return ""
}

// OpenFiles returns the number of open files of a process, and how many of them are sockets. A process that has exited
// has none.
func OpenFiles(pid int) (files, sockets uint64) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	d, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return 0, 0
	}
	for _, name := range names {
		to, err := os.Readlink(dir + "/" + name)
		if err != nil {
			continue // closed in the meantime
		}
		files++
		if strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return files, sockets
}

// FileLimit returns the limit of open files of a process, or -1 for no limit. ok is false if it has exited.
func FileLimit(pid int) (n int64, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		rest, found := strings.CutPrefix(line, "Max open files")
		f := strings.Fields(rest)
		if !found || len(f) == 0 {
			continue
		}
		if f[0] == "unlimited" {
			return -1, true
		}
		n, err := strconv.ParseInt(f[0], 10, 64)
		return n, err == nil
	}
	return 0, false
}
