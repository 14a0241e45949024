package oom

import (
	"regexp"
	"strconv"
	"strings"
)

// Kill is a process that the kernel has killed for its memory.
type Kill struct {
	Process string
	PID     int
	Cgroup  string // that it was in
	Machine bool   // the whole machine was out of memory, and not a cgroup at its limit
}

// line is what kernels since 5.0 say of it. The name of the process is its own to
// choose, so all that comes before is looked for first, and what comes after last.
var line = regexp.MustCompile(`^oom-kill:constraint=.*?,` +
	`(global_oom|oom_memcg=.*?),task_memcg=(.*?),task=(.*),pid=(\d+),uid=\d+$`)

// kernel is the facility of the kernel's own messages. Programs that write to the log
// cannot use it.
const kernel = 0

// Parse reads one record of /dev/kmsg: numbers, the first of which tells who speaks
// and how loud, a semicolon, and the message.
func Parse(record string) (Kill, bool) {
	head, message, ok := strings.Cut(record, ";")
	who, _, _ := strings.Cut(head, ",")
	priority, err := strconv.ParseUint(who, 10, 32)
	if !ok || err != nil || priority>>3 != kernel {
		return Kill{}, false
	}
	message, _, _ = strings.Cut(message, "\n") // fields of the record follow
	m := line.FindStringSubmatch(message)
	if m == nil {
		return Kill{}, false
	}
	pid, err := strconv.Atoi(m[4])
	if err != nil {
		return Kill{}, false
	}
	return Kill{Process: m[3], PID: pid, Cgroup: m[2], Machine: m[1] == "global_oom"}, true
}
