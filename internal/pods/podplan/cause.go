package podplan

import (
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// stopsForRestart reports whether a container that the agent stops for this cause is restarted regardless of its exit
// status. After a failed probe that has to be recorded only if the restart policy or a restart rule could decide
// otherwise.
func stopsForRestart(cause Cause, p *v1.Pod, name string) bool {
	switch cause {
	case CauseSpecChanged, CauseResize:
		return true
	case CauseLiveness, CauseStartup:
		if p == nil {
			return false
		}
		kind, spec, known := pod.Find(p, name)
		if !known || kind != pod.Regular || !RestartsAfterProbe(p, spec) {
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

// replaces reports whether a container that is stopped for that cause is started again in the same sync of upstream's.
//
// Upstream stops a container for a failed probe or a changed specification and starts it again in one sync, with the
// pod status from before the stop, in which the stopped instance still runs. So the crash back-off of that restart
// counts from the end of the instance before it, and there is none without such an instance. [Input.Replaced] gives the
// same back-off.
func replaces(cause Cause, p *v1.Pod, name string) bool {
	if p == nil {
		return false
	}
	kind, spec, known := pod.Find(p, name)
	if !known {
		return false
	}
	switch cause {
	case CauseSpecChanged, CauseResize, CauseUnknownState:
		return true
	case CauseLiveness, CauseStartup:
		return kind != pod.Regular || RestartsAfterProbe(p, spec)
	case CauseSandboxChanged:
		// That sync creates the new sandbox and starts the first init container, or else the regular ones.
		if inits := p.Spec.InitContainers; len(inits) > 0 {
			return name == inits[0].Name
		}
		return kind == pod.Regular
	}
	return false
}

// RestartsAfterProbe reports whether a container that a failed probe ends is started again. Restart rules do not
// count: they are about how a container exits by itself.
func RestartsAfterProbe(p *v1.Pod, c *v1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	return p.Spec.RestartPolicy != v1.RestartPolicyNever
}
