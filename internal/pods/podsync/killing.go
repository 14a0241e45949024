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
		if regular && known && restartsAfterProbe(p, spec) {
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

// recalls reports whether a container that the agent stops for this cause is restarted whatever
// its exit status. After a failed probe that has to be noted only where the restart policy or a
// restart rule could decide otherwise.
func recalls(cause podplan.Cause, p *v1.Pod, name string) bool {
	switch cause {
	case podplan.CauseSpecChanged, podplan.CauseResize:
		return true
	case podplan.CauseLiveness, podplan.CauseStartup:
		if p == nil {
			return false
		}
		kind, spec, known := pod.Find(p, name)
		if !known || kind != pod.Regular || !restartsAfterProbe(p, spec) {
			return false
		}
		always := p.Spec.RestartPolicy == v1.RestartPolicyAlways
		if spec.RestartPolicy != nil {
			always = *spec.RestartPolicy == v1.ContainerRestartPolicyAlways
		}
		return !always || len(spec.RestartPolicyRules) > 0
	}
	return false
}

// restartsAfterProbe reports whether a container that a failed probe ends is started again. Restart rules do not
// count: they are about how a container exits by itself.
func restartsAfterProbe(p *v1.Pod, c *v1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	return p.Spec.RestartPolicy != v1.RestartPolicyNever
}
