package oom

import (
	"regexp"
	"strconv"
	"strings"
)

// Kill is an OOM kill.
type Kill struct {
	Process string
	PID     int
	Cgroup  string // of the process
	Machine bool   // the machine was out of memory, not a cgroup at its limit
}

// line is the message of kernels since 5.0. The name of the process can contain any text, so everything before it is
// matched first, and everything after it last.
var line = regexp.MustCompile(`^oom-kill:constraint=.*?,` +
	`(global_oom|oom_memcg=.*?),task_memcg=(.*?),task=(.*),pid=(\d+),uid=\d+$`)

// kernel is the syslog facility of the kernel, which programs that write to the log cannot use.
const kernel = 0

// Parse parses a record of /dev/kmsg: numbers, of which the first is the syslog priority, a semicolon, and the message.
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
