package script

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// untruths are the errors in published statuses.
func (c *chronicle) untruths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.untruthsLocked()
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *chronicle) untruthsLocked() (out []string) {
	for _, tale := range c.tales() {
		out = append(out, reportedBackwards(tale)...)
		out = append(out, contradictions(tale)...)
	}
	return out
}

// contradictions are contradictions within a pod's statuses, and between a status and the one before.
func contradictions(tale []sighting) (out []string) {
	var before *corev1.Pod
	for _, s := range tale {
		if s.pod.Status.StartTime == nil {
			continue // the agent has not written a status yet
		}
		wrong := func(format string, args ...any) {
			out = append(out, "pod "+s.pod.Name+": "+fmt.Sprintf(format, args...))
		}
		atOdds(s.pod, wrong)
		if before != nil {
			incoherent(before, s.pod, wrong)
		}
		before = s.pod
	}
	return out
}

type wrong func(format string, args ...any)

// atOdds looks for two parts of one status that contradict each other.
func atOdds(p *corev1.Pod, wrong wrong) {
	ready := true
	for kind, c := range pod.Containers(p) {
		st := containerStatus(p, c.Name)
		if st == nil {
			// A rejected pod has no container statuses, and an ephemeral container may be newer than the status.
			if kind != pod.Ephemeral && (p.Status.Phase != corev1.PodFailed || len(p.Status.ContainerStatuses) > 0) {
				wrong("nothing is shown of container %s", c.Name)
			}
			continue
		}
		now, last := st.State, st.LastTerminationState.Terminated
		switch {
		case now.Running != nil && st.ContainerID == "":
			wrong("container %s runs and has no ID", c.Name)
		case now.Running != nil && last != nil && now.Running.StartedAt.Before(&last.FinishedAt):
			wrong("container %s started at %s, the one before ended at %s", c.Name, now.Running.StartedAt,
				last.FinishedAt)
		case now.Terminated != nil && last != nil && last.ContainerID != "" &&
			last.ContainerID == now.Terminated.ContainerID:
			wrong("container %s shows one end twice", c.Name)
		case now.Waiting != nil && now.Waiting.Reason == "":
			wrong("container %s waits for no reason", c.Name)
		case st.Ready && now.Running == nil && kind != pod.Init:
			wrong("container %s is ready and %s", c.Name, state(now))
		case st.Ready && now.Running != nil && (st.Started == nil || !*st.Started):
			wrong("container %s is ready and has not started", c.Name)
		case now.Running != nil && len(p.Status.PodIPs) == 0:
			wrong("container %s runs and the pod has no address", c.Name)
		case p.Status.Phase == corev1.PodSucceeded && kind == pod.Regular &&
			(now.Terminated == nil || now.Terminated.ExitCode != 0):
			wrong("it succeeded, and container %s is %s", c.Name, state(now))
		case ended(p) && now.Running != nil:
			wrong("it is %s, and container %s is %s", p.Status.Phase, c.Name, state(now))
		}
		if kind == pod.Regular || kind == pod.Sidecar {
			ready = ready && st.Ready
		}
	}
	if isTrue(p, corev1.PodReady) && !isTrue(p, corev1.ContainersReady) {
		wrong("it is ready, and its containers are not")
	}
	if isTrue(p, corev1.ContainersReady) && (!ready || p.Status.Phase != corev1.PodRunning) {
		wrong("its containers are ready: %s", brief(p))
	}
	if p.Status.ObservedGeneration > p.Generation {
		wrong("generation %d was observed, and it has %d", p.Status.ObservedGeneration, p.Generation)
	}
}

// incoherent looks for changes between two statuses that are not possible.
func incoherent(before, p *corev1.Pod, wrong wrong) {
	if !before.Status.StartTime.Equal(p.Status.StartTime) {
		wrong("it started at %s, and at %s", before.Status.StartTime, p.Status.StartTime)
	}
	if before.Status.QOSClass != p.Status.QOSClass {
		wrong("it is %s after it was %s", p.Status.QOSClass, before.Status.QOSClass)
	}
	if before.Status.ObservedGeneration > p.Status.ObservedGeneration {
		wrong("generation %d was observed after %d", p.Status.ObservedGeneration, before.Status.ObservedGeneration)
	}
	if before.Status.Phase == corev1.PodRunning && p.Status.Phase == corev1.PodPending && ran(before) &&
		!beginsAnew(p) {
		wrong("it is %s after it was %s", brief(p), brief(before))
	}
	for _, c := range p.Status.Conditions {
		for _, b := range before.Status.Conditions {
			if b.Type == c.Type {
				turned(b, c, wrong)
			}
		}
	}
	for _, st := range statuses(p) {
		was := containerStatus(before, st.Name)
		if was == nil || was.ContainerID == "" || st.ContainerID == "" {
			continue
		}
		if was.ContainerID != st.ContainerID {
			if st.RestartCount <= was.RestartCount && was.State.Running != nil {
				wrong("container %s is %s with %d restarts, after %s with %d", st.Name, st.ContainerID, st.RestartCount,
					was.ContainerID, was.RestartCount)
			}
			continue
		}
		switch {
		case was.State.Terminated != nil && st.State.Running != nil:
			wrong("container %s runs after it had ended", st.Name)
		case was.State.Running != nil && st.State.Running != nil &&
			!was.State.Running.StartedAt.Equal(&st.State.Running.StartedAt):
			wrong("container %s runs since %s, and since %s", st.Name, was.State.Running.StartedAt,
				st.State.Running.StartedAt)
		case was.Started != nil && *was.Started && st.State.Running != nil && (st.Started == nil || !*st.Started):
			wrong("container %s has not started, after it had", st.Name)
		}
	}
}

// ran reports whether the status shows a container that has run.
func ran(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
		return st.State.Running != nil || st.State.Terminated != nil || st.LastTerminationState.Terminated != nil
	})
}

// beginsAnew reports whether a pod may start from the beginning again: its init containers run again
// in a new sandbox, a rule restarts all its containers, or its manifest is removed and restored.
func beginsAnew(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || len(p.Spec.InitContainers) > 0 || podplan.CanRestartAll(p)
}

// startsAtLast reports whether a pod with a terminal phase may still start: a restarted agent treats a static pod
// without containers in the runtime as a new one.
func startsAtLast(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror && !slices.ContainsFunc(p.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool {
		return st.ContainerID != ""
	})
}

// turned checks that the transition time and the observed generation of a condition do not go back.
func turned(before, now corev1.PodCondition, wrong wrong) {
	switch b, n := before.LastTransitionTime, now.LastTransitionTime; {
	case n.Before(&b):
		wrong("%s is %s since %s, after %s since %s", now.Type, now.Status, clock(n), before.Status, clock(b))
	case before.ObservedGeneration > now.ObservedGeneration:
		wrong("%s was seen of generation %d after %d", now.Type, now.ObservedGeneration, before.ObservedGeneration)
	}
}

func isTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue })
}

func clock(t metav1.Time) string { return t.UTC().Format("15:04:05") }
