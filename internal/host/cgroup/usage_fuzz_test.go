package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// usageFiles are all the files that usage is read from, in either version.
var usageFiles = []string{
	"blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced", "cgroup.procs", "cpu.cfs_period_us",
	"cpu.cfs_quota_us", "cpu.max", "cpu.pressure", "cpu.shares", "cpu.stat", "cpu.weight", "cpuacct.stat",
	"cpuacct.usage",
	"io.pressure", "io.stat", "memory.current", "memory.failcnt", "memory.kmem.usage_in_bytes", "memory.limit_in_bytes",
	"memory.low", "memory.max", "memory.max_usage_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control",
	"memory.peak", "memory.pressure", "memory.soft_limit_in_bytes", "memory.stat", "memory.swap.current",
	"memory.swap.max", "memory.usage_in_bytes", "pids.current", "pids.max",
}

// FuzzUsage reads usage from files with arbitrary content: kernels differ, and a container with its
// own cgroup tree controls what it shows.
func FuzzUsage(f *testing.F) {
	f.Add("usage_usec 5\nuser_usec 3\nnr_periods 7\n", "max 100000", "12345")
	f.Add("some avg10=0.50 avg60=0.00 avg300=0.00 total=2000000\nfull avg10=x", "8:0 rbytes=4096 wbytes=8192 rios=1",
		"-1")
	f.Add("8:0 Read 5\n8:0 Write\nTotal 7\n", "18446744073709551615", "9223372036854771712")
	f.Add("", "\n\n", "inactive_file 99999999999999999999")
	dir := f.TempDir()
	v2 := Hierarchies{Unified: filepath.Join(dir, "unified")}
	v1 := Hierarchies{V1: map[string]string{}}
	places := []string{v2.Unified}
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
		v1.V1[controller] = filepath.Join(dir, controller)
		places = append(places, v1.V1[controller])
	}
	for _, p := range places {
		if err := os.MkdirAll(filepath.Join(p, "pod"), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, p := range places {
			for i, name := range usageFiles {
				if err := os.WriteFile(filepath.Join(p, "pod", name), []byte([]string{a, b, c}[i%3]),
					0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, h := range []Hierarchies{v1, v2} {
			u, err := h.Usage("/pod", Full)
			if err != nil {
				t.Fatal(err)
			}
			if u.Memory.WorkingSet > u.Memory.Usage {
				t.Errorf("a working set of %d in memory of %d", u.Memory.WorkingSet, u.Memory.Usage)
			}
			if u.At.After(time.Now()) || slices.ContainsFunc(u.Processes, func(pid int) bool { return pid <= 0 }) {
				t.Errorf("read at %v, processes %v", u.At, u.Processes)
			}
		}
	})
}
