package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Info are the facts about the machine that do not change while it is up.
type Info struct {
	CPUs      int
	Memory    uint64            // bytes
	Swap      uint64            // bytes; 0 without swap
	HugePages map[uint64]uint64 // number of allocated pages, by page size in bytes

	MachineID  string // empty: none
	SystemUUID string
	BootID     string

	Kernel  string // release, as uname -r
	OSImage string // the distribution's pretty name
	OS      string
	Arch    string

	MaxPIDs int64 // maximum number of processes and threads; 0: not known
}

// Host returns the root of this machine.
func Host() fs.FS { return os.DirFS("/") }

// Read reads the facts about the machine with the root fsys.
func Read(fsys fs.FS) (Info, error) {
	cpus, err := cpuCount(fsys)
	if err != nil {
		return Info{}, err
	}
	mem, err := ReadMemory(fsys)
	if err != nil {
		return Info{}, err
	}
	huge, err := hugePagesOf(fsys, "sys/kernel/mm/hugepages")
	if err != nil {
		return Info{}, err
	}
	return Info{
		CPUs:      cpus,
		Memory:    mem.Total,
		Swap:      mem.SwapTotal,
		HugePages: huge,
		MachineID: first(fsys, "etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID: first(fsys, "sys/class/dmi/id/product_uuid", "proc/device-tree/system-id",
			"proc/device-tree/vm,uuid",
			"etc/machine-id"),
		BootID:  first(fsys, "proc/sys/kernel/random/boot_id"),
		Kernel:  first(fsys, "proc/sys/kernel/osrelease"),
		OSImage: osImage(fsys),
		OS:      runtime.GOOS,
		Arch:    runtime.GOARCH,
		MaxPIDs: maxPIDs(fsys),
	}, nil
}

// PageSizes returns the huge page sizes of the machine in bytes, ascending.
func (i Info) PageSizes() []uint64 { return slices.Sorted(maps.Keys(i.HugePages)) }

// cpuCount returns the number of online processors. Some sandboxes hide the list in /sys but have all processors in
// /proc/cpuinfo.
func cpuCount(fsys fs.FS) (int, error) {
	if text := first(fsys, "sys/devices/system/cpu/online"); text != "" {
		n, err := countList(text)
		if err != nil {
			return 0, fmt.Errorf("read sys/devices/system/cpu/online: %w", err)
		}
		return n, nil
	}
	text, err := fs.ReadFile(fsys, "proc/cpuinfo")
	if err != nil {
		return 0, fmt.Errorf("count processors: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if key, _, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "processor" {
			n++
		}
	}
	if n == 0 {
		return 0, errors.New("count processors: proc/cpuinfo has none")
	}
	return n, nil
}

// countList returns the length of a kernel list such as 0-3,8.
func countList(list string) (int, error) {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.Atoi(from)
		if err != nil {
			return 0, fmt.Errorf("bad list %q", list)
		}
		b, err := strconv.Atoi(to)
		if err != nil || b < a {
			return 0, fmt.Errorf("bad list %q", list)
		}
		n += b - a + 1
	}
	return n, nil
}

// hugePagesOf reads the huge page pools. A kernel without huge pages has none.
func hugePagesOf(fsys fs.FS, dir string) (map[uint64]uint64, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list huge page sizes: %w", err)
	}
	pools := map[uint64]uint64{}
	for _, e := range entries {
		kb, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kb, ok2 := strings.CutSuffix(kb, "kB")
		size, err := strconv.ParseUint(kb, 10, 54)
		if !ok || !ok2 || err != nil {
			continue // not a pool
		}
		text := first(fsys, path.Join(dir, e.Name(), "nr_hugepages"))
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read %s/%s/nr_hugepages: not a number: %q", dir, e.Name(), text)
		}
		pools[size<<10] = n
	}
	return pools, nil
}

// osImage returns the name of the distribution.
func osImage(fsys fs.FS) string {
	for _, file := range []string{"etc/os-release", "usr/lib/os-release"} {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				return strings.Trim(v, `"'`)
			}
		}
	}
	return "Linux"
}

// maxPIDs returns the lower one of two kernel limits.
func maxPIDs(fsys fs.FS) int64 {
	var limit int64
	for _, file := range []string{"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"} {
		if n, err := strconv.ParseInt(first(fsys, file), 10, 64); err == nil && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}

// first returns the trimmed content of the first file that is not empty. Device tree files end with a NUL.
func first(fsys fs.FS, files ...string) string {
	for _, f := range files {
		b, err := fs.ReadFile(fsys, f)
		if s := strings.Trim(string(b), " \t\r\n\x00"); err == nil && s != "" {
			return s
		}
	}
	return ""
}
