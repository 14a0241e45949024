package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// unlimitedMemory is the value from which a v1 memory limit means no limit. The kernel shows the largest multiple of
// the page size.
const unlimitedMemory = 1 << 62

// ticks is the number of clock ticks per second, the unit of user and system time in cgroup v1. It is the same on all
// architectures.
const ticks = 100

// Usage is the resource usage of a cgroup and its descendants.
type Usage struct {
	At time.Time // of the reading
	// Created is the creation time of the cgroup, unless the kernel has lost it: see [Hierarchies.created]. Without
	// details it may be some milliseconds late.
	Created time.Time
	CPU     CPUUsage
	Memory  MemoryUsage

	// The following is read with details only.
	Processes  []int // of this cgroup only
	Threads    uint64
	MaxThreads uint64 // 0: no limit
	Disks      []DiskUsage
}

// CPUUsage is the usage of CPU time.
type CPUUsage struct {
	Total    time.Duration
	Pressure *Pressure // nil: not supported by the kernel

	User, System                 time.Duration
	Shares                       uint64
	Period, Quota                int64 // microseconds; Quota 0: no limit
	Periods, Throttled, Bursts   uint64
	ThrottledTime, BurstDuration time.Duration
}

// MemoryUsage is the usage of memory in bytes, and counts of page faults.
type MemoryUsage struct {
	Usage, WorkingSet, RSS uint64
	Swap                   uint64
	Faults, MajorFaults    uint64 // including descendants
	Limit                  uint64 // 0: none
	SwapLimit              uint64 // of swap only; 0: no swap, or no limit: see SwapLimited
	SwapLimited            bool
	Pressure               *Pressure

	Cache, Mapped, Kernel, Peak         uint64
	ActiveFile, InactiveFile            uint64
	OwnFaults, OwnMajorFaults, FailHits uint64
	SoftLimit, SwapAndMemoryLimit       uint64 // 0: none
	OOMKills                            uint64
}

// DiskUsage is the I/O of one disk.
type DiskUsage struct {
	Major, Minor                             uint64
	ReadBytes, WriteBytes, ReadOps, WriteOps uint64
}

// Pressure is pressure stall information.
type Pressure struct{ Some, Full Stall }

// Stall is a line of pressure stall information: percentages over 10, 60 and 300 seconds, and the total time.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Detail selects how much of the usage is read.
type Detail int

// The levels of detail.
const (
	Core Detail = iota // CPU time and memory
	Full
)

// Usage reads the usage of the cgroup at path. The error is fs.ErrNotExist if there is none.
func (h Hierarchies) Usage(path string, d Detail) (Usage, error) {
	u := Usage{At: time.Now()}
	dir := h.main(path)
	info, err := os.Stat(dir)
	if err != nil {
		return u, fmt.Errorf("read cgroup usage: %w", err)
	}
	u.Created = info.ModTime()
	if d == Full {
		u.Created = h.created(path, u.Created)
	}
	r := reader{}
	if h.V2() {
		r.readV2(&u, dir, d)
	} else {
		r.readV1(&u, h, path, d)
	}
	if r.err != nil {
		return u, fmt.Errorf("read cgroup usage: %w", r.err)
	}
	if _, err := os.Stat(dir); r.gone || err != nil {
		// It was removed meanwhile, and missing files would count as no usage.
		return u, fmt.Errorf("read cgroup usage: %s: %w", path, fs.ErrNotExist)
	}
	return u, nil
}

// Children returns the names of the cgroups directly below path.
func (h Hierarchies) Children(path string) ([]string, error) {
	entries, err := os.ReadDir(h.main(path))
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Processes returns the processes of the cgroup, without those of its descendants.
func (h Hierarchies) Processes(path string) ([]int, error) {
	r := reader{}
	pids := r.pids(h.main(path))
	return pids, r.err
}

// main returns the directory that is used to look for the cgroup.
func (h Hierarchies) main(path string) string {
	if h.V2() {
		return filepath.Join(h.Unified, path)
	}
	return filepath.Join(h.V1["memory"], path)
}

// PodsPath returns the cgroup of all pods.
func (t *Tree) PodsPath() string { return t.pods.path(t.cfg.Driver) }

// Find returns the path of the cgroup of a pod without a known specification.
func (t *Tree) Find(uid string) (string, bool) {
	for _, qos := range allQoS {
		p := t.pods.qosName(qos).child(podPrefix + uid).path(t.cfg.Driver)
		if _, err := os.Stat(t.cfg.Hierarchies.main(p)); err == nil {
			return p, true
		}
	}
	return "", false
}

// ParentPaths returns the cgroup of all pods, and those of QoS classes.
func (t *Tree) ParentPaths() []string {
	var out []string
	for _, qos := range allQoS {
		out = append(out, t.pods.qosName(qos).path(t.cfg.Driver))
	}
	return out
}

// Hierarchies returns the mounted hierarchies.
func (t *Tree) Hierarchies() Hierarchies { return t.cfg.Hierarchies }

// reader reads files and keeps the first error. Missing files are ignored, because kernels and controllers differ. A
// file of a cgroup that is removed meanwhile is noted in gone.
type reader struct {
	err  error
	gone bool
}

func (r *reader) text(dir, file string) (string, bool) {
	if dir == "" {
		return "", false
	}
	b, err := os.ReadFile(filepath.Join(dir, file))
	switch {
	case errors.Is(err, unix.ENODEV):
		r.gone = true
		return "", false
	case err != nil:
		if !errors.Is(err, fs.ErrNotExist) && r.err == nil {
			r.err = err
		}
		return "", false
	}
	return strings.TrimSpace(string(b)), true
}

// number reads one number. Missing files and "max" are 0.
func (r *reader) number(dir, file string) uint64 {
	text, ok := r.text(dir, file)
	if !ok {
		return 0
	}
	return parse(text)
}

func parse(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0 // max, or -1
	}
	return n
}

// limit returns a memory limit, or 0 for none.
func limit(n uint64) uint64 {
	if n >= unlimitedMemory {
		return 0
	}
	return n
}

// flat reads lines of keys and numbers.
func (r *reader) flat(dir, file string, into func(key string, n uint64)) {
	text, ok := r.text(dir, file)
	if !ok {
		return
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		into(key, parse(value))
	}
}

func (r *reader) pids(dir string) []int {
	text, ok := r.text(dir, procsFile)
	if !ok {
		return nil
	}
	var out []int
	for line := range strings.Lines(text) {
		// 0 is a process of another namespace.
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && n > 0 {
			out = append(out, n)
		}
	}
	return out
}

// pressure reads a file such as cpu.pressure. It returns nil if there is none or accounting is disabled.
func (r *reader) pressure(dir, file string) *Pressure {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	return ParsePressure(string(b))
}

// ParsePressure parses pressure stall information. It returns nil if there is none.
func ParsePressure(text string) *Pressure {
	var p Pressure
	seen := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 5 {
			continue
		}
		into := &p.Some
		if fields[0] == "full" {
			into = &p.Full
		} else if fields[0] != "some" {
			continue
		}
		seen = true
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			if key == "total" {
				into.Total = time.Duration(parse(value)) * time.Microsecond
				continue
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				continue
			}
			switch key {
			case "avg10":
				into.Avg10 = v
			case "avg60":
				into.Avg60 = v
			case "avg300":
				into.Avg300 = v
			}
		}
	}
	if !seen {
		return nil
	}
	return &p
}

func (r *reader) readV1(u *Usage, h Hierarchies, path string, d Detail) {
	at := func(controller string) string {
		if mount := h.V1[controller]; mount != "" {
			return filepath.Join(mount, path)
		}
		return ""
	}
	mem := at("memory")
	u.CPU.Total = time.Duration(r.number(at("cpuacct"), "cpuacct.usage"))
	m := &u.Memory
	m.Usage = r.number(mem, "memory.usage_in_bytes")
	m.Limit = limit(r.number(mem, "memory.limit_in_bytes"))
	m.SwapAndMemoryLimit = limit(r.number(mem, "memory.memsw.limit_in_bytes"))
	if m.SwapAndMemoryLimit >= m.Limit && m.Limit > 0 {
		m.SwapLimit, m.SwapLimited = m.SwapAndMemoryLimit-m.Limit, m.SwapAndMemoryLimit > 0
	}
	into := map[string]*uint64{
		"total_rss":           &m.RSS,
		"total_swap":          &m.Swap,
		"total_pgfault":       &m.Faults,
		"total_pgmajfault":    &m.MajorFaults,
		"total_cache":         &m.Cache,
		"total_mapped_file":   &m.Mapped,
		"total_active_file":   &m.ActiveFile,
		"total_inactive_file": &m.InactiveFile,
		"pgfault":             &m.OwnFaults,
		"pgmajfault":          &m.OwnMajorFaults,
	}
	r.flat(mem, "memory.stat", func(key string, n uint64) {
		if p := into[key]; p != nil {
			*p = n
		}
	})
	m.WorkingSet = m.Usage - min(m.InactiveFile, m.Usage)
	if d < Full {
		return
	}
	r.flat(at("cpuacct"), "cpuacct.stat", func(key string, n uint64) {
		switch took := time.Duration(n) * time.Second / ticks; key {
		case "user":
			u.CPU.User = took
		case "system":
			u.CPU.System = took
		}
	})
	cpu := at("cpu")
	u.CPU.Shares = r.number(cpu, "cpu.shares")
	u.CPU.Period = int64(r.number(cpu, "cpu.cfs_period_us"))
	u.CPU.Quota = int64(r.number(cpu, "cpu.cfs_quota_us"))
	r.flat(cpu, "cpu.stat", func(key string, n uint64) {
		switch key {
		case "throttled_time":
			u.CPU.ThrottledTime = time.Duration(n)
		case "burst_time":
			u.CPU.BurstDuration = time.Duration(n)
		default:
			u.CPU.count(key, n)
		}
	})
	m.Peak = r.number(mem, "memory.max_usage_in_bytes")
	m.FailHits = r.number(mem, "memory.failcnt")
	m.Kernel = r.number(mem, "memory.kmem.usage_in_bytes")
	m.SoftLimit = limit(r.number(mem, "memory.soft_limit_in_bytes"))
	r.flat(mem, "memory.oom_control", func(key string, n uint64) {
		if key == "oom_kill" {
			m.OOMKills = n
		}
	})
	pids := at("pids")
	u.Threads, u.MaxThreads = r.number(pids, "pids.current"), r.number(pids, "pids.max")
	if u.Processes = r.pids(cpu); cpu == "" {
		u.Processes = r.pids(mem)
	}
	blkio := at("blkio")
	disks := map[string]*DiskUsage{}
	r.operations(blkio, "blkio.throttle.io_service_bytes", disks,
		func(d *DiskUsage) (read, write *uint64) { return &d.ReadBytes, &d.WriteBytes })
	r.operations(blkio, "blkio.throttle.io_serviced", disks,
		func(d *DiskUsage) (read, write *uint64) { return &d.ReadOps, &d.WriteOps })
	u.Disks = inOrder(disks)
}

// count sets a throttling counter, whose names are the same in v1 and v2.
func (c *CPUUsage) count(key string, n uint64) {
	switch key {
	case "nr_periods":
		c.Periods = n
	case "nr_throttled":
		c.Throttled = n
	case "nr_bursts":
		c.Bursts = n
	}
}

// operations parses lines such as "8:0 Read 4096".
func (r *reader) operations(dir, file string, disks map[string]*DiskUsage, of func(*DiskUsage) (read, write *uint64)) {
	text, _ := r.text(dir, file)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue // the sum
		}
		read, write := of(disk(disks, f[0]))
		switch f[1] {
		case "Read":
			*read = parse(f[2])
		case "Write":
			*write = parse(f[2])
		}
	}
}

func disk(disks map[string]*DiskUsage, number string) *DiskUsage {
	d, ok := disks[number]
	if !ok {
		major, minor, _ := strings.Cut(number, ":")
		d = &DiskUsage{Major: parse(major), Minor: parse(minor)}
		disks[number] = d
	}
	return d
}

func (r *reader) readV2(u *Usage, dir string, d Detail) {
	r.flat(dir, "cpu.stat", func(key string, n uint64) {
		took := time.Duration(n) * time.Microsecond
		switch key {
		case "usage_usec":
			u.CPU.Total = took
		case "user_usec":
			u.CPU.User = took
		case "system_usec":
			u.CPU.System = took
		case "throttled_usec":
			u.CPU.ThrottledTime = took
		case "burst_usec":
			u.CPU.BurstDuration = took
		default:
			u.CPU.count(key, n)
		}
	})
	u.CPU.Pressure = r.pressure(dir, "cpu.pressure")
	m := &u.Memory
	m.Pressure = r.pressure(dir, "memory.pressure")
	m.Usage = r.number(dir, "memory.current")
	m.Limit = r.number(dir, "memory.max")
	m.Swap = r.number(dir, "memory.swap.current")
	if text, ok := r.text(dir, "memory.swap.max"); ok && text != "max" {
		m.SwapLimit, m.SwapLimited = parse(text), true
		m.SwapAndMemoryLimit = m.SwapLimit + m.Limit
	}
	into := map[string]*uint64{
		"anon":          &m.RSS,
		"file":          &m.Cache,
		"file_mapped":   &m.Mapped,
		"kernel":        &m.Kernel,
		"pgfault":       &m.Faults,
		"pgmajfault":    &m.MajorFaults,
		"active_file":   &m.ActiveFile,
		"inactive_file": &m.InactiveFile,
	}
	r.flat(dir, "memory.stat", func(key string, n uint64) {
		if p := into[key]; p != nil {
			*p = n
		}
	})
	m.OwnFaults, m.OwnMajorFaults = m.Faults, m.MajorFaults
	m.WorkingSet = m.Usage - min(m.InactiveFile, m.Usage)
	if d < Full {
		return
	}
	u.CPU.Shares = sharesOf(r.number(dir, "cpu.weight"))
	if text, ok := r.text(dir, "cpu.max"); ok {
		quota, period, _ := strings.Cut(text, " ")
		u.CPU.Quota, u.CPU.Period = int64(parse(quota)), int64(parse(period))
	}
	m.Peak = r.number(dir, "memory.peak")
	m.SoftLimit = r.number(dir, "memory.low")
	r.flat(dir, "memory.events", func(key string, n uint64) {
		switch key {
		case "max":
			m.FailHits = n
		case "oom_kill":
			m.OOMKills = n
		}
	})
	u.Threads, u.MaxThreads = r.number(dir, "pids.current"), r.number(dir, "pids.max")
	u.Processes = r.pids(dir)
	disks := map[string]*DiskUsage{}
	text, _ := r.text(dir, "io.stat")
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		d := disk(disks, f[0])
		for _, pair := range f[1:] {
			key, value, _ := strings.Cut(pair, "=")
			switch key {
			case "rbytes":
				d.ReadBytes = parse(value)
			case "wbytes":
				d.WriteBytes = parse(value)
			case "rios":
				d.ReadOps = parse(value)
			case "wios":
				d.WriteOps = parse(value)
			}
		}
	}
	u.Disks = inOrder(disks)
}

// sharesOf converts a v2 weight to v1 shares. It is the reverse of [weight].
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}

func inOrder(disks map[string]*DiskUsage) []DiskUsage {
	var out []DiskUsage
	for _, key := range slices.Sorted(maps.Keys(disks)) {
		out = append(out, *disks[key])
	}
	return out
}

// IOPressure reads the I/O pressure of a cgroup. It returns nil if the kernel does not support it.
func (h Hierarchies) IOPressure(path string) *Pressure {
	if !h.V2() {
		return nil
	}
	r := reader{}
	return r.pressure(filepath.Join(h.Unified, path), "io.pressure")
}

// Own returns the cgroup of this process. It is empty if it is the root, or differs between CPU time and memory.
func (h Hierarchies) Own() string { return groupOf("/proc/self/cgroup", h.V2()) }

// groupOf returns the cgroup in a file such as /proc/self/cgroup.
func groupOf(file string, v2 bool) string {
	by, err := cgroups.ParseCgroupFile(file)
	group := by[""]
	if !v2 {
		group = by["memory"]
	}
	if err != nil || group == "/" || !v2 && by["cpuacct"] != group {
		return ""
	}
	return group
}
