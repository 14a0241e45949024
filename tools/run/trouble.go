package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// trouble is a reason why a pod does not run as it should.
type trouble struct {
	Step  string // what the kubelet could not do
	Cause string
	Do    string // what to do about it
}

func (t trouble) String() string {
	return t.Step + "\n  cause: " + t.Cause + "\n  to do: " + t.Do
}

// What to do, by the reason a container waits for.
const (
	doManifest = "correct the manifest; it is read again as soon as it is saved"
	doImage    = "use keelson.local/demo:1, the image made here; no registry is asked unless the manifest names one that this machine reaches"
	doLog      = "read its log, below pod-logs/ in the private folder"
)

// findTroubles returns the problems of a pod. The reasons of a normal start are not problems.
func findTroubles(p *v1.Pod) (out []trouble) {
	add := func(step, cause, do string) { out = append(out, trouble{step, cause, do}) }
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "", "PodInitializing", "ContainerCreating":
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError":
			add(fmt.Sprintf("cannot get image %s of container %s", c.Image, c.Name), says(w.Reason, w.Message), doImage)
		case "CrashLoopBackOff":
			add(fmt.Sprintf("container %s keeps ending", c.Name), lastEnd(c), doLog)
		default:
			add(fmt.Sprintf("cannot start container %s", c.Name), says(w.Reason, w.Message), doManifest)
		}
	}
	if p.Status.Phase != v1.PodFailed {
		return out
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
			add(fmt.Sprintf("container %s failed", c.Name), end(e), doLog)
		}
	}
	if len(out) == 0 {
		add("the pod failed", says(p.Status.Reason, p.Status.Message), doManifest)
	}
	return out
}

// lastEnd returns how a waiting container last terminated.
func lastEnd(c v1.ContainerStatus) string {
	if e := c.LastTerminationState.Terminated; e != nil {
		return end(e)
	}
	return says(c.State.Waiting.Reason, c.State.Waiting.Message)
}

func end(e *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("it ended with code %d", e.ExitCode)
	if more := says(e.Reason, e.Message); e.Reason != "Error" && e.Reason != "Completed" || e.Message != "" {
		text += ", " + more
	}
	return text
}

// says joins a reason and a message, either of which may be empty.
func says(reason, message string) string {
	text := strings.TrimSpace(strings.Trim(reason+": "+strings.TrimSpace(message), ": "))
	if text == "" {
		return "not reported; see the kubelet's log"
	}
	return text
}
