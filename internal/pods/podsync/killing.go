package podsync

import (
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// killing is the message of the Killing event for a container that is stopped for a cause, as upstream's; empty for
// the default message. Only messages of regular containers name whether the container is restarted.
func killing(cause podplan.Cause, p *v1.Pod, name string) string {
	kind, spec, known := pod.Kind(0), (*v1.Container)(nil), false
	if p != nil {
		kind, spec, known = pod.Find(p, name)
	}
	what, regular := "Container "+name+" ", !known || kind == pod.Regular
	if !regular {
		what = "Init container " + name + " "
	}
	switch cause {
	case podplan.CauseSpecChanged:
		if regular {
			return what + "definition changed, will be restarted"
		}
		return what + "definition changed"
	case podplan.CauseLiveness, podplan.CauseStartup:
		if regular && known && podplan.RestartsAfterProbe(p, spec) {
			return what + string(cause) + ", will be restarted"
		}
		return what + string(cause)
	case podplan.CauseResize:
		return "Container " + name + " resize requires restart"
	case podplan.CauseUnknownState:
		if !regular {
			return `Init container is in "unknown" state, try killing it before restart`
		}
		return `Container is in "unknown" state, try killing it before restart`
	case podplan.CauseRemoval:
		return "Container is in unknown state, try killing it before removal"
	case podplan.CauseRestartAll:
		return "killing"
	}
	return ""
}
