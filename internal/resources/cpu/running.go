package cpu

import (
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// seen is what was last observed in the runtime.
type seen interface {
	UIDs() []types.UID
	Get(types.UID) (pod.Runtime, bool)
}

// RunningIn returns the containers that were last observed as running.
func RunningIn(o seen) []Running {
	var out []Running
	for _, uid := range o.UIDs() {
		have, _ := o.Get(uid)
		for _, c := range have.Containers {
			if c.State == pod.StateRunning {
				out = append(out, Running{UID: uid, Container: c.Name, ID: c.ID})
			}
		}
	}
	return out
}
