package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Unlimited is the value for no limit.
const Unlimited = math.MaxInt64

// Size is the size of a pod's cgroup, in units of the kernel.
type Size struct {
	Weight int64 // v1: shares
	Shares int64 // the weight as v1 shares
	Quota  int64 // µs per period, or Unlimited
	Period int64 // µs
	Memory int64 // bytes, or Unlimited
}

// Memory limits are multiples of the page size. The v1 value for no limit is the largest one.
var (
	pageBytes   = int64(os.Getpagesize())
	v1Unlimited = math.MaxInt64 / pageBytes * pageBytes
)

// absent is the value if the machine has no controller for it.
const absent = -1

// Size returns the current size of the pod's cgroup, and the one that p requires. They are equal where the machine has
// no controller, or p sets no limit.
func (t *Tree) Size(p *v1.Pod) (now, next Size, err error) {
	if now, err = t.read(t.Parent(p)); err != nil {
		return now, next, fmt.Errorf("read cgroup of pod: %w", err)
	}
	next = t.requested(p, now)
	for _, v := range []struct{ now, next *int64 }{
		{&now.Weight, &next.Weight},
		{&now.Shares, &next.Shares},
		{&now.Quota, &next.Quota},
		{&now.Period, &next.Period},
		{&now.Memory, &next.Memory},
	} {
		if *v.now == absent {
			*v.now = *v.next
		}
	}
	if now.Weight == next.Weight {
		now.Shares = next.Shares // several values of cpu.shares map to one cpu.weight of v2
	}
	return now, next, nil
}

// requested converts the pod's values to units of the kernel. Values that p does not set are copied from now.
func (t *Tree) requested(p *v1.Pod, now Size) Size {
	v := PodValues(p, t.cfg.Pod)
	s := now
	s.Weight, s.Shares = t.weightOf(v.CPUShares), int64(v.CPUShares)
	if v.CPUQuota != 0 {
		s.Quota, s.Period = v.CPUQuota, int64(v.CPUPeriod)
	}
	if s.Quota <= 0 {
		s.Quota = Unlimited
	}
	if v.Memory > 0 && v.Memory-v.Memory%pageBytes != now.Memory {
		s.Memory = v.Memory
	}
	if s.Memory <= 0 {
		s.Memory = Unlimited
	}
	s.Period = max(s.Period, 0)
	return s
}

// weightOf converts shares to the unit of the kernel.
func (t *Tree) weightOf(shares uint64) int64 {
	if t.cfg.Hierarchies.V2() {
		return int64(weight(shares))
	}
	return int64(shares)
}

func (t *Tree) read(p string) (Size, error) {
	h := t.cfg.Hierarchies
	if h.V2() {
		dir := filepath.Join(h.Unified, p)
		max, period, _ := strings.Cut(text(dir, "cpu.max"), " ")
		s, err := sizeOf(text(dir, "cpu.weight"), max, period, text(dir, "memory.max"))
		if s.Weight != absent {
			s.Shares = int64(sharesOf(uint64(s.Weight)))
		}
		return s, err
	}
	cpu, memory := filepath.Join(h.V1["cpu"], p), filepath.Join(h.V1["memory"], p)
	return sizeOf(text(cpu, "cpu.shares"), text(cpu, "cpu.cfs_quota_us"), text(cpu, "cpu.cfs_period_us"),
		text(memory, "memory.limit_in_bytes"))
}

// text returns the content of a cgroup file, or an empty string if it does not exist, for example without the
// controller.
func text(dir, file string) string {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func sizeOf(weight, quota, period, memory string) (s Size, err error) {
	if weight == "" && quota == "" && memory == "" {
		return s, fs.ErrNotExist
	}
	number := func(text string) int64 {
		if text == "" {
			return absent
		}
		if text == "max" {
			return Unlimited
		}
		n, perr := strconv.ParseInt(text, 10, 64)
		if perr != nil {
			err = errors.Join(err, perr)
		}
		if n < 0 || n >= v1Unlimited {
			return Unlimited
		}
		return n
	}
	s = Size{
		Weight: number(weight),
		Quota:  number(quota),
		Period: number(period),
		Memory: number(memory),
	}
	s.Shares = s.Weight
	return s, err
}

// Resize writes the limit or weight of one resource of the pod's cgroup. Other values are kept.
func (t *Tree) Resize(p *v1.Pod, res v1.ResourceName, limit bool) error {
	all := PodValues(p, t.cfg.Pod)
	var v Values
	switch {
	case res == v1.ResourceMemory:
		v.Memory = all.Memory
	case limit:
		v.CPUQuota, v.CPUPeriod = all.CPUQuota, all.CPUPeriod
	default:
		v.CPUShares = all.CPUShares
	}
	if err := t.set(t.podName(p), v); err != nil {
		return pod.ShowAs(err.Error(), fmt.Errorf("resize cgroup of pod: %w", err))
	}
	return nil
}

// MemoryUsage returns the memory usage of the pod in bytes.
func (t *Tree) MemoryUsage(p *v1.Pod) (int64, error) {
	h := t.cfg.Hierarchies
	file := filepath.Join(h.V1["memory"], t.Parent(p), "memory.usage_in_bytes")
	if h.V2() {
		file = filepath.Join(h.Unified, t.Parent(p), "memory.current")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read memory usage of pod: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory usage of pod: %w", err)
	}
	return n, nil
}
