package script

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"keelson/test/kit/fakecri"
)

// names gives pods of the same name different names, by UID: web, web~2, web~3.
func (w *World) names() map[string]string {
	names, count := map[string]string{}, map[string]int{}
	for _, c := range w.Runtime.Calls(0) {
		name := strings.TrimPrefix(c.Pod, Namespace+"/")
		if c.UID == "" || names[c.UID] != "" {
			continue
		}
		count[name]++
		names[c.UID] = name
		if n := count[name]; n > 1 {
			names[c.UID] = fmt.Sprintf("%s~%d", name, n)
		}
	}
	return names
}

// showAllCalls shows every call, lists and reads too, with its time and its result.
func (w *World) showAllCalls() string {
	names := w.names()
	var b strings.Builder
	for _, c := range w.Runtime.Calls(0) {
		if c.Method == "Status" || c.Method == "GetContainerEvents" {
			continue
		}
		fmt.Fprintf(&b, "%10.3fs %s %s", c.Start.Sub(w.begin).Seconds(), c.Method, cmp.Or(names[c.UID], c.Image))
		if c.Container != "" {
			fmt.Fprintf(&b, "/%s#%d", c.Container, c.Attempt)
		}
		switch {
		case c.End.IsZero():
			b.WriteString(" (has no end)")
		case c.Err != "":
			fmt.Fprintf(&b, " -> %s: %s", c.Code, c.Err)
		}
		if c.Done && c.Err != "" {
			b.WriteString(", and was done")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// showCalls shows the calls with a sequence number above after that change something or
// run a command, pod by pod in the order in which they happened.
func (w *World) showCalls(after int, pod string, timed bool) string {
	names := w.names()
	var calls []fakecri.Call
	for _, c := range w.Runtime.Calls(after) {
		isProbe := len(c.Command) > 0 && c.Command[0] == "healthy"
		if (writing[c.Method] || c.Method == "ExecSync" && !isProbe) && (pod == "" || names[c.UID] == pod) {
			calls = append(calls, c)
		}
	}
	slices.SortStableFunc(calls, func(a, b fakecri.Call) int {
		return cmp.Or(cmp.Compare(names[a.UID], names[b.UID]), a.Start.Compare(b.Start),
			cmp.Compare(a.Method, b.Method), cmp.Compare(a.Key(), b.Key()), cmp.Compare(a.Image, b.Image))
	})
	var b strings.Builder
	for _, c := range calls {
		if timed {
			fmt.Fprintf(&b, "%4.0fs ", c.Start.Sub(w.begin).Seconds())
		}
		name := cmp.Or(names[c.UID], "?")
		fmt.Fprintf(&b, "%s %s", c.Method, name)
		switch {
		case c.Method == "PullImage":
			fmt.Fprintf(&b, " %s", c.Image)
		case c.Container != "":
			fmt.Fprintf(&b, "/%s#%d", c.Container, c.Attempt)
		case c.Attempt > 0:
			fmt.Fprintf(&b, "#%d", c.Attempt)
		}
		switch {
		case c.Method == "StopContainer":
			fmt.Fprintf(&b, " %ds", c.Timeout)
		case len(c.Command) > 0:
			fmt.Fprintf(&b, " %s", strings.Join(c.Command, " "))
		}
		switch {
		case c.End.IsZero():
			b.WriteString(" ...")
		case c.Err != "":
			fmt.Fprintf(&b, " -> %s", c.Code)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// showRequests shows the requests to the API server about a pod since the last requests step.
func (r *Run) showRequests(pod string) string {
	var b strings.Builder
	all := r.Proxy.Requests()
	for _, req := range all[r.logged:] {
		if req.Namespace == Namespace && req.Name == pod {
			fmt.Fprintf(&b, "%4.0fs %s %s -> %d\n", req.Start.Sub(r.begin).Seconds(), req.Verb, req.Resource, req.Code)
		}
	}
	r.logged = len(all)
	return b.String()
}

// showStatus shows a pod as the API server has it.
func (w *World) showStatus(p *corev1.Pod) string {
	if p == nil {
		return ""
	}
	var b strings.Builder
	s := &p.Status
	b.WriteString(string(s.Phase) + text(s.Reason, s.Message))
	if p.DeletionTimestamp != nil {
		b.WriteString(", being deleted")
	}
	b.WriteString("\n")
	var isTrue []string
	for _, c := range s.Conditions {
		if c.Status == corev1.ConditionTrue {
			isTrue = append(isTrue, string(c.Type)+text(c.Reason, c.Message))
		}
	}
	slices.Sort(isTrue)
	if len(s.Conditions) > 0 {
		fmt.Fprintf(&b, "  is %s\n", strings.Join(isTrue, ", "))
	}
	for _, c := range slices.SortedFunc(slices.Values(s.Conditions),
		func(a, b corev1.PodCondition) int { return cmp.Compare(a.Type, b.Type) }) {
		if c.Status != corev1.ConditionTrue {
			fmt.Fprintf(&b, "  not %s%s\n", c.Type, text(c.Reason, c.Message))
		}
	}
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
		fmt.Fprintf(&b, "  %s: %s", c.Name, state(c.State))
		if c.Ready {
			b.WriteString(", ready")
		}
		if c.State.Running != nil && c.Started != nil && !*c.Started {
			b.WriteString(", not started")
		}
		if c.RestartCount > 0 {
			fmt.Fprintf(&b, ", restarts %d", c.RestartCount)
		}
		if last := state(c.LastTerminationState); last != "" {
			fmt.Fprintf(&b, ", last %s", last)
		}
		b.WriteString("\n")
	}
	return w.plain(b.String())
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting" + text(s.Waiting.Reason, s.Waiting.Message)
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("exited %d%s", s.Terminated.ExitCode, text(s.Terminated.Reason, s.Terminated.Message))
	}
	return ""
}

func text(reason, message string) string {
	out := ""
	if reason != "" {
		out += " " + reason
	}
	if message != "" {
		out += fmt.Sprintf(" %q", message)
	}
	return out
}

// ShowEvents shows the events about a pod, or about all pods.
func (w *World) ShowEvents(pod string) string {
	events := w.takeEvents(pod)
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.pod, b.pod), cmp.Compare(a.container, b.container))
	})
	var b strings.Builder
	for _, e := range events {
		about := e.pod
		if e.container != "" {
			about += "/" + e.container
		}
		fmt.Fprintf(&b, "%s %s %s: %s", about, e.kind, e.reason, e.message)
		if e.again {
			b.WriteString(" (again)")
		}
		b.WriteString("\n")
	}
	return w.plain(b.String())
}

var (
	longID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	lack   = regexp.MustCompile(
		`(didn't have enough resource: (?:cpu|memory), requested: \d+, used: \d+), capacity: \d+`)
	took = regexp.MustCompile(`\b[0-9.]+m?s \([0-9.]+m?s including waiting\)`)
)

// plain replaces values that differ between runs by placeholders.
func (w *World) plain(s string) string {
	for uid, name := range w.names() {
		s = strings.ReplaceAll(s, uid, "<"+name+">")
	}
	for _, o := range w.Server.Objects(corev1.SchemeGroupVersion.WithResource("pods")) {
		p := o.(*corev1.Pod)
		s = strings.ReplaceAll(s, string(p.UID), "<"+p.Name+">")
	}
	for _, o := range w.Server.Objects(resourcev1.SchemeGroupVersion.WithResource("resourceclaims")) {
		c := o.(*resourcev1.ResourceClaim)
		s = strings.ReplaceAll(s, string(c.UID), "<"+c.Name+">")
	}
	if ip := SomeAddress(); ip != "" {
		s = strings.ReplaceAll(s, ip, "<node>")
	}
	s = took.ReplaceAllString(s, "<time>")
	s = lack.ReplaceAllString(s, "$1") // the capacity is that of the machine
	return longID.ReplaceAllString(strings.ReplaceAll(s, w.Dir, "<dir>"), "<id>")
}

// showPulls shows the images that were pulled since the beginning, with the pod and the
// runtime handler.
func (w *World) showPulls() string {
	var lines []string
	for _, p := range w.Runtime.Pulls() {
		line := strings.TrimPrefix(p.Pod, Namespace+"/") + " " + p.Image
		if p.Handler != "" {
			line += " on " + p.Handler
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// showRuntime shows the pods in the runtime.
func (w *World) showRuntime() string {
	names := w.names()
	// Sorted by name: the order of pods that are created at the same time is random.
	pods := w.Runtime.Pods()
	slices.SortStableFunc(pods, func(a, b fakecri.Pod) int { return cmp.Compare(names[a.UID], names[b.UID]) })
	var b strings.Builder
	for _, p := range pods {
		b.WriteString(names[p.UID] + strings.TrimPrefix(p.String(), p.Name) + "\n")
	}
	return b.String()
}

// showLeft shows every trace of pods on the node.
func (w *World) showLeft() (string, error) {
	traces, err := w.traces()
	if err != nil {
		return "", err
	}
	return w.plain(cmp.Or(w.showRuntime()+strings.Join(traces, ""), "nothing\n")), nil
}

// traces are the directories and mounts of pods, a line each.
func (w *World) traces() (lines []string, err error) {
	for _, dir := range []string{"kubelet/pods", "logs", "containers"} {
		entries, err := os.ReadDir(w.Path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			lines = append(lines, fmt.Sprintf("%s/%s\n", dir, e.Name()))
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.Path("kubelet/pods")))
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		lines = append(lines, fmt.Sprintf("mount %s\n", m.Mountpoint))
	}
	return lines, nil
}

// seconds reads 10, 10s or 5m.
func seconds(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	return time.ParseDuration(s + "s")
}
