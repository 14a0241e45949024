package cgroup

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// setting is a value of a file of a controller.
type setting struct {
	controller, file, value string
	optional                bool // the file may be missing
}

// settingsV1 returns the settings for cgroup v1.
func (v Values) settingsV1() []setting {
	var out []setting
	add := func(controller, file string, value any) {
		out = append(out, setting{controller: controller, file: file, value: fmt.Sprint(value)})
	}
	if v.CPUShares != 0 {
		add("cpu", "cpu.shares", v.CPUShares)
	}
	if v.CPUPeriod != 0 {
		add("cpu", "cpu.cfs_period_us", v.CPUPeriod)
	}
	if v.CPUQuota != 0 {
		add("cpu", "cpu.cfs_quota_us", v.CPUQuota)
	}
	if v.Memory != 0 {
		add("memory", "memory.limit_in_bytes", v.Memory)
	}
	if v.PIDs != 0 {
		add("pids", "pids.max", v.PIDs)
	}
	for _, size := range slices.Sorted(maps.Keys(v.HugePages)) {
		for _, file := range []string{".limit_in_bytes", ".rsvd.limit_in_bytes"} {
			add("hugetlb", "hugetlb."+PageSizeName(size)+file, v.HugePages[size])
		}
	}
	return markOptional(out)
}

// settingsV2 returns the settings for cgroup v2.
func (v Values) settingsV2() []setting {
	var out []setting
	add := func(controller, file string, value any) {
		out = append(out, setting{controller: controller, file: file, value: fmt.Sprint(value)})
	}
	if v.CPUShares != 0 {
		add("cpu", "cpu.weight", weight(v.CPUShares))
	}
	if v.CPUQuota != 0 {
		period := v.CPUPeriod
		if period == 0 {
			period = 100000
		}
		limit := "max"
		if v.CPUQuota > 0 {
			limit = strconv.FormatInt(v.CPUQuota, 10)
		}
		add("cpu", "cpu.max", fmt.Sprintf("%s %d", limit, period))
	}
	if v.Memory != 0 {
		add("memory", "memory.max", v.Memory)
	}
	if v.PIDs != 0 {
		add("pids", "pids.max", v.PIDs)
	}
	for _, size := range slices.Sorted(maps.Keys(v.HugePages)) {
		limit := any(v.HugePages[size])
		if v.HugePages[size] == unlimitedHP {
			limit = "max"
		}
		for _, file := range []string{".max", ".rsvd.max"} {
			add("hugetlb", "hugetlb."+PageSizeName(size)+file, limit)
		}
	}
	return markOptional(out)
}

// markOptional marks limits of huge page reservations, which exist since Linux 5.7.
func markOptional(ss []setting) []setting {
	for i := range ss {
		ss[i].optional = strings.Contains(ss[i].file, ".rsvd.")
	}
	return ss
}
