package script

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// startedInVain looks, in the calls to the runtime, for attempts that are not numbered one after
// the other, and for containers that were started although they must not run any more.
func (w *World) startedInVain() (out []string) {
	type key struct{ uid, container string }
	made, started := map[key]int{}, map[key]int{}
	sandboxes := map[string]int{}
	names := w.names()
	for _, c := range w.Runtime.Calls(0) {
		k := key{c.UID, c.Container}
		name := fmt.Sprintf("%s/%s#%d", names[c.UID], c.Container, c.Attempt)
		switch {
		case !c.Done || c.UID == "":
		case c.Method == "RunPodSandbox":
			sandboxes[c.UID]++
		case c.Method == "RemovePodSandbox":
			if sandboxes[c.UID]--; sandboxes[c.UID] == 0 {
				// Nothing is left of the pod. A static pod may be created again with the same UID.
				ofPod := func(k key, _ int) bool { return k.uid == c.UID }
				maps.DeleteFunc(made, ofPod)
				maps.DeleteFunc(started, ofPod)
			}
		case c.Method == "CreateContainer":
			if before, again := made[k]; again && int(c.Attempt) > before+1 {
				out = append(out, fmt.Sprintf("%s was made, and #%d before it", name, before))
			}
			made[k] = int(c.Attempt)
		case c.Method == "StartContainer":
			before, again := started[k]
			if again && int(c.Attempt) <= before {
				out = append(out, fmt.Sprintf("%s was started, and #%d before it", name, before))
			}
			if again && w.runsOnce(strings.TrimPrefix(c.Pod, Namespace+"/"), c.Container) {
				out = append(out, name+" was started, and was to run only once")
			}
			started[k] = int(c.Attempt)
		}
	}
	return out
}

// runsOnce reports whether a container never runs again once it has run. Init containers and sidecars
// run again in a new sandbox.
func (w *World) runsOnce(name, container string) bool {
	p := w.specs[cmp.Or(strings.TrimSuffix(name, "-"+Node), name)]
	if p == nil || p.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if len(c.RestartPolicyRules) > 0 {
			return false // a rule may restart all containers
		}
	}
	kind, c, ok := pod.Find(p, container)
	return ok && kind == pod.Regular && c.RestartPolicy == nil && len(c.ResizePolicy) == 0
}
