package podplan

import (
	"keelson/internal/pods/pod"
)

// prune removes what is not needed of a pod that stays: of each container
// the ended instances but the newest ones, which show how it ended, and sandboxes that
// the newest has replaced.
func (d *decision) prune() {
	kept, most := map[string]int{}, max(d.in.KeepEnded, 1)
	for _, c := range d.in.Have.Containers {
		switch {
		case c.State == pod.StateUnknown:
			if kept[c.Name] >= most { // it may run: it is stopped, and then removed
				d.stop(c, d.in.Now.Add(pod.Grace(d.in.Pod)), CauseRemoval,
					"an older instance, and the runtime cannot tell its state")
			}
		case c.State != pod.StateExited:
		case kept[c.Name] >= most:
			d.act(Step{Verb: Remove, Target: Instance(c.ID), Reason: "an older instance"})
		default:
			kept[c.Name]++
		}
	}
	for i, s := range d.in.Have.Sandboxes {
		if i > 0 && !s.Ready && !d.inUse(s.ID) {
			d.act(Step{Verb: RemoveSandbox, Target: Sandbox(s.ID), Reason: "an older sandbox"})
		}
	}
}

func (d *decision) inUse(sandbox string) bool {
	for _, c := range d.in.Have.Containers {
		if c.SandboxID == sandbox {
			return true
		}
	}
	return false
}
