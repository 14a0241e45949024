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

	"golang.org/x/sys/unix"
)

// unlimitedMemory is the number above which a limit on memory is none: cgroup v1
// has no word for it and shows the largest multiple of a page.
const unlimitedMemory = 1 << 62

// ticks of the clock in a second, in which cgroup v1 counts user and system time.
// It is the same on every architecture that Linux supports.
const ticks = 100

// Usage is what the processes of a cgroup, and of those below it, use and have
// used so far.
type Usage struct {
	At time.Time // when it was read
	// Created is when the cgroup was made, unless the kernel has forgotten: see [Hierarchies.created]. Without details
	// it may be some milliseconds late.
	Created time.Time
	CPU     CPUUsage
	Memory  MemoryUsage

	// What follows is read only when details are asked for.
	Processes  []int // in this cgroup itself
	Threads    uint64
	MaxThreads uint64 // 0: no limit
	Disks      []DiskUsage
}

// CPUUsage is time on processors.
type CPUUsage struct {
	Total    time.Duration
	Pressure *Pressure // nil where the kernel does not tell

	User, System                 time.Duration
	Shares                       uint64
	Period, Quota                int64 // microseconds; a Quota of 0 is none
	Periods, Throttled, Bursts   uint64
	ThrottledTime, BurstDuration time.Duration
}

// MemoryUsage is memory in bytes, and counts of faults.
type MemoryUsage struct {
	Usage, WorkingSet, RSS uint64
	Swap                   uint64
	Faults, MajorFaults    uint64 // of this cgroup and those below
	Limit                  uint64 // 0: none
	SwapLimit              uint64 // of swap alone; 0: none may be used, or no limit: see SwapLimited
	SwapLimited            bool
	Pressure               *Pressure

	Cache, Mapped, Kernel, Peak         uint64
	ActiveFile, InactiveFile            uint64
	OwnFaults, OwnMajorFaults, FailHits uint64
	SoftLimit, SwapAndMemoryLimit       uint64 // 0: none
	OOMKills                            uint64
}

// DiskUsage counts what went to and from one disk.
type DiskUsage struct {
	Major, Minor                             uint64
	ReadBytes, WriteBytes, ReadOps, WriteOps uint64
}

// Pressure tells how much time was lost waiting.
type Pressure struct{ Some, Full Stall }

// Stall is one line of pressure: shares of the last 10, 60 and 300 seconds in
// percent, and the time in all.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Detail says how much of a usage is read: each part is a few files.
type Detail int

// The details.
const (
	Core Detail = iota // CPU time and memory
	Full
)

// Usage reads what the cgroup at path uses. fs.ErrNotExist is in the error when
// there is none.
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
		// It went meanwhile, and what was not read by then would pass for nothing used.
		return u, fmt.Errorf("read cgroup usage: %s: %w", path, fs.ErrNotExist)
	}
	return u, nil
}

// Children names the cgroups directly below path.
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

// Processes are the processes in the cgroup itself, not in those below.
func (h Hierarchies) Processes(path string) ([]int, error) {
	r := reader{}
	pids := r.pids(h.main(path))
	return pids, r.err
}

// main is the directory that stands for the cgroup: pods have one in every
// hierarchy, so any would do.
func (h Hierarchies) main(path string) string {
	if h.V2() {
		return filepath.Join(h.Unified, path)
	}
	return filepath.Join(h.V1["memory"], path)
}

// PodsPath is the cgroup of all pods.
func (t *Tree) PodsPath() string { return t.pods.path(t.cfg.Driver) }

// Find is the path of the cgroup of a pod whose specification is not at hand.
func (t *Tree) Find(uid string) (string, bool) {
	for _, qos := range allQoS {
		p := t.pods.qosName(qos).child(podPrefix + uid).path(t.cfg.Driver)
		if _, err := os.Stat(t.cfg.Hierarchies.main(p)); err == nil {
			return p, true
		}
	}
	return "", false
}

// ParentPaths are the cgroups above the pods: that of all, and those of classes.
func (t *Tree) ParentPaths() []string {
	var out []string
	for _, qos := range allQoS {
		out = append(out, t.pods.qosName(qos).path(t.cfg.Driver))
	}
	return out
}

// Hierarchies tells where the tree is mounted.
func (t *Tree) Hierarchies() Hierarchies { return t.cfg.Hierarchies }

// reader reads files and keeps the first error. A file that is not there is no
// error: kernels and controllers differ in what they show. Nor is one whose group goes
// while it is read; of that nothing is known then.
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

// number reads one number; "max" and absent files are 0.
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

// limit is a limit on memory, 0 for none.
func limit(n uint64) uint64 {
	if n >= unlimitedMemory {
		return 0
	}
	return n
}

// flat reads lines of a key and a number.
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
		// 0 is a process that this one cannot see.
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && n > 0 {
			out = append(out, n)
		}
	}
	return out
}

// pressure reads a file such as cpu.pressure; nil when there is none, or when the
// kernel was told not to keep account.
func (r *reader) pressure(dir, file string) *Pressure {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	return ParsePressure(string(b))
}

// ParsePressure reads what the kernel says of pressure; nil when it says nothing.
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
		"total_rss": &m.RSS, "total_swap": &m.Swap, "total_pgfault": &m.Faults, "total_pgmajfault": &m.MajorFaults,
		"total_cache": &m.Cache, "total_mapped_file": &m.Mapped, "total_active_file": &m.ActiveFile, "total_inactive_file": &m.InactiveFile,
		"pgfault": &m.OwnFaults, "pgmajfault": &m.OwnMajorFaults,
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
	r.operations(blkio, "blkio.throttle.io_service_bytes", disks, func(d *DiskUsage) (read, write *uint64) { return &d.ReadBytes, &d.WriteBytes })
	r.operations(blkio, "blkio.throttle.io_serviced", disks, func(d *DiskUsage) (read, write *uint64) { return &d.ReadOps, &d.WriteOps })
	u.Disks = inOrder(disks)
}

// count takes in a counter of throttling, which v1 and v2 name alike.
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

// operations reads lines such as "8:0 Read 4096".
func (r *reader) operations(dir, file string, disks map[string]*DiskUsage, of func(*DiskUsage) (read, write *uint64)) {
	text, _ := r.text(dir, file)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue // the total
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
		"anon": &m.RSS, "file": &m.Cache, "file_mapped": &m.Mapped, "kernel": &m.Kernel, "pgfault": &m.Faults, "pgmajfault": &m.MajorFaults,
		"active_file": &m.ActiveFile, "inactive_file": &m.InactiveFile,
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

// sharesOf is the v1 word for a v2 weight, as monitoring shows both: the way back
// of [weight].
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

// IOPressure reads the pressure on disks of a cgroup; nil where the kernel does
// not tell.
func (h Hierarchies) IOPressure(path string) *Pressure {
	if !h.V2() {
		return nil
	}
	r := reader{}
	return r.pressure(filepath.Join(h.Unified, path), "io.pressure")
}

// Own is the group of this process; empty when it is in none of its own, or not in
// the same one for CPU time and memory.
func (h Hierarchies) Own() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return ownGroup(string(text), h.V2())
}

// ownGroup reads /proc/self/cgroup: number, controllers and path of each hierarchy.
func ownGroup(text string, v2 bool) string {
	by := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[2] == "/" {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			by[controller] = f[2]
		}
	}
	switch {
	case v2:
		return by[""]
	case by["cpuacct"] == by["memory"]:
		return by["memory"]
	}
	return ""
}
