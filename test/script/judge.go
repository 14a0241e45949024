package script

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/fakecri"
)

// breaches are the broken invariants that no history may break.
func (c *chronicle) breaches() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	specs, lives := c.specs(), c.lives()
	out = append(out, c.untruthsLocked()...)
	for key, life := range lives {
		if p := specs[key[0]]; p != nil {
			out = append(out, startedInVain(p, key[1], life)...)
		}
	}
	out = append(out, c.outOfTurn(specs)...)
	slices.Sort(out)
	return slices.Compact(out)
}

// reportedBackwards looks for statuses that go back: a terminal phase that changes, or fewer restarts.
func reportedBackwards(tale []sighting) (out []string) {
	restarts := map[string]int32{}
	var before *corev1.Pod
	for _, s := range tale {
		if before != nil && ended(before) && s.pod.Status.Phase != before.Status.Phase && !startsAtLast(before) {
			out = append(out,
				fmt.Sprintf("pod %s is %s after it was %s", s.pod.Name, s.pod.Status.Phase, before.Status.Phase))
		}
		for _, st := range statuses(s.pod) {
			if st.RestartCount < restarts[st.Name] {
				out = append(out,
					fmt.Sprintf("container %s/%s has %d restarts after it had %d", s.pod.Name, st.Name, st.RestartCount,
						restarts[st.Name]))
			}
			restarts[st.Name] = st.RestartCount
		}
		before = s.pod
	}
	return out
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func statuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses)
}

// startedInVain looks for a container that was started again although its restart policy does not allow that.
func startedInVain(p *corev1.Pod, name string, life []fakecri.Moment) (out []string) {
	kind, _, _ := pod.Find(p, name)
	if kind != pod.Regular {
		return nil // other kinds run again in a new sandbox
	}
	starts, done := 0, false
	for _, m := range life {
		switch policy := p.Spec.RestartPolicy; {
		case m.Ended:
			done = done || policy == corev1.RestartPolicyOnFailure && m.Code == 0
		case policy == corev1.RestartPolicyNever && starts > 0:
			out = append(out,
				fmt.Sprintf("container %s/%s#%d was started though it ran before, and never runs again", p.Name, name,
					m.Attempt))
		case done:
			out = append(out,
				fmt.Sprintf("container %s/%s#%d was started though it had succeeded", p.Name, name, m.Attempt))
		}
		if !m.Ended {
			starts++
		}
	}
	return out
}

// outOfTurn looks for containers that started too early in the start order, and for two running instances of a
// container.
func (c *chronicle) outOfTurn(specs map[string]*corev1.Pod) (out []string) {
	type instance struct{ sandbox, container string }
	began, succeeded := map[instance]bool{}, map[instance]bool{}
	runs := map[[2]string]int{}
	for _, m := range c.moments {
		at, key := instance{m.Sandbox, m.Container}, [2]string{m.UID, m.Container}
		if m.Ended {
			runs[key]--
			succeeded[at] = succeeded[at] || m.Code == 0
			continue
		}
		if runs[key]++; runs[key] > 1 {
			out = append(out, fmt.Sprintf("two instances of %s/%s run at once", m.Pod, m.Container))
		}
		began[at] = true
		p := specs[m.UID]
		if p == nil {
			continue
		}
		for kind, before := range pod.Containers(p) {
			if before.Name == m.Container {
				break
			}
			was := instance{m.Sandbox, before.Name}
			if kind == pod.Init && !succeeded[was] || kind == pod.Sidecar && !began[was] {
				out = append(out, fmt.Sprintf("container %s/%s began before %s", p.Name, m.Container, before.Name))
			}
		}
	}
	return out
}

// unsettled returns the differences between the node and the state that it must have reached after peace.
func (w *World) unsettled() []string {
	var out []string
	wrong := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	held := map[string][]fakecri.Pod{}
	for _, p := range w.Runtime.Pods() {
		held[p.UID] = append(held[p.UID], p)
	}
	wanted := map[string]bool{}
	for _, o := range w.Server.Objects(corev1.SchemeGroupVersion.WithResource("pods")) {
		p := o.(*corev1.Pod)
		wanted[uid(p)] = true
		if p.DeletionTimestamp != nil {
			wrong("pod %s is still being deleted", p.Name)
			continue
		}
		newest := map[string]*cri.ContainerStatus{}
		for _, h := range held[uid(p)] {
			for _, c := range h.Containers {
				if have := newest[c.Status.Metadata.Name]; have == nil || have.CreatedAt < c.Status.CreatedAt {
					newest[c.Status.Metadata.Name] = c.Status
				}
			}
		}
		for _, text := range untrue(p, newest) {
			wrong("%s", text)
		}
	}
	for id, pods := range held {
		if !wanted[id] {
			wrong("the runtime holds %s, which no source has", pods[0])
		}
	}
	traces, err := w.traces()
	if err != nil {
		wrong("%v", err)
	}
	for _, line := range traces {
		if !slices.ContainsFunc(sorted(wanted), func(id string) bool { return strings.Contains(line, id) }) &&
			!strings.HasPrefix(line, "containers/") {
			wrong("%s is left", strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return out
}

// untrue returns the differences between a pod's status and the runtime, and the changes that the pod
// should have completed.
func untrue(p *corev1.Pod, newest map[string]*cri.ContainerStatus) (out []string) {
	wrong := func(format string, args ...any) {
		out = append(out, "pod "+p.Name+": "+fmt.Sprintf(format, args...))
	}
	stays := true // no container exits by itself
	over := true  // no container has to run any more
	for kind, c := range pod.Containers(p) {
		if kind == pod.Init || kind == pod.Regular {
			stays = stays && steady(c)
		}
		st, is := containerStatus(p, c.Name), newest[c.Name]
		running := is != nil && is.State == cri.ContainerState_CONTAINER_RUNNING
		switch {
		case st == nil:
			wrong("nothing is shown of container %s", c.Name)
			continue
		case (st.State.Running != nil) != running:
			wrong("container %s is %s; the runtime holds %s", c.Name, state(st.State), seen(is))
		case is != nil && !ended(p) && st.RestartCount != int32(is.Metadata.Attempt) &&
			is.State != cri.ContainerState_CONTAINER_CREATED:
			wrong("container %s has %d restarts; the runtime holds %s", c.Name, st.RestartCount, seen(is))
		case ended(p) && running:
			wrong("container %s runs though the pod is %s", c.Name, p.Status.Phase)
		}
		if kind == pod.Regular {
			over = over && is != nil && is.State == cri.ContainerState_CONTAINER_EXITED &&
				(p.Spec.RestartPolicy == corev1.RestartPolicyNever ||
					p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && is.ExitCode == 0)
		}
	}
	switch {
	case ended(p):
	case slices.ContainsFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizeInProgress }):
		wrong("it is still being resized")
	case p.Spec.ActiveDeadlineSeconds != nil:
		wrong("it is %s long after its deadline", p.Status.Phase)
	case over:
		wrong("it is %s though all its containers have ended", p.Status.Phase)
	case stays && p.Spec.RestartPolicy == corev1.RestartPolicyAlways && !holds(p, "Ready"):
		wrong("it is not ready: %s", brief(p))
	}
	return out
}

// steady reports whether a container does not exit by itself, or is an init container that
// succeeds.
func steady(c *corev1.Container) bool {
	command := strings.Join(c.Command, " ")
	return command == "" || strings.Contains(command, "infinity") ||
		c.Name == "init" && strings.HasSuffix(command, "exit 0")
}

func seen(c *cri.ContainerStatus) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("#%d, %s", c.Metadata.Attempt,
		strings.ToLower(strings.TrimPrefix(c.State.String(), "CONTAINER_")))
}

// brief is the state of a pod and its containers in one line.
func brief(p *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s", p.Status.Phase, text(p.Status.Reason, p.Status.Message))
	for _, st := range statuses(p) {
		fmt.Fprintf(&b, ", %s %s", st.Name, state(st.State))
	}
	return b.String()
}
