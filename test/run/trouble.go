package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// trouble says why a pod is not as it should be. The zero value: it is, or it
// is on its way.
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

// findTrouble finds the first thing that keeps a pod from its work. Reasons that
// are steps on the way are none.
func findTrouble(p *v1.Pod) trouble {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "", "PodInitializing", "ContainerCreating":
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError":
			return trouble{fmt.Sprintf("cannot get image %s of container %s", c.Image, c.Name), says(w.Reason, w.Message), doImage}
		case "CrashLoopBackOff":
			return trouble{fmt.Sprintf("container %s keeps ending", c.Name), lastEnd(c), doLog}
		default:
			return trouble{fmt.Sprintf("cannot start container %s", c.Name), says(w.Reason, w.Message), doManifest}
		}
	}
	if p.Status.Phase == v1.PodFailed {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
				return trouble{fmt.Sprintf("container %s failed", c.Name), end(e), doLog}
			}
		}
		return trouble{"the pod failed", says(p.Status.Reason, p.Status.Message), doManifest}
	}
	return trouble{}
}

// lastEnd says how a container that is not running ended last.
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
		return "not said; see the kubelet's log"
	}
	return text
}
