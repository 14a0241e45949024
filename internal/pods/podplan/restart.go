package podplan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Restarts tells whether a container that ended as c did is to be started again
// while its pod is wanted. Rules of the container come first, then its own
// policy (KEP-5307), then the pod's.
func Restarts(p *v1.Pod, kind pod.Kind, spec *v1.Container, c pod.Container) bool {
	if kind == pod.Ephemeral {
		return false
	}
	if c.Recalled {
		return true
	}
	if r, ok := matchingRule(spec, c.ExitCode); ok {
		return r.Action == v1.ContainerRestartRuleActionRestart || restartsAll(r)
	}
	policy := p.Spec.RestartPolicy
	if spec.RestartPolicy != nil {
		policy = v1.RestartPolicy(*spec.RestartPolicy)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return !Succeeded(kind, c)
	default:
		// Always restarts an init container only after a failure: it is done once
		// it has succeeded.
		return kind != pod.Init || !Succeeded(kind, c)
	}
}

// Succeeded reports whether an exited container did its work. An init container
// that was killed for memory has not, whatever exit code its shell gave.
func Succeeded(kind pod.Kind, c pod.Container) bool {
	return c.ExitCode == 0 && !c.Recalled && !(kind == pod.Init && c.Reason == "OOMKilled")
}

// matchingRule is the first rule that speaks of the exit code.
func matchingRule(spec *v1.Container, code int32) (v1.ContainerRestartRule, bool) {
	i := slices.IndexFunc(spec.RestartPolicyRules, func(r v1.ContainerRestartRule) bool { return ruleMatches(r, code) })
	if i < 0 {
		return v1.ContainerRestartRule{}, false
	}
	return spec.RestartPolicyRules[i], true
}

func ruleMatches(r v1.ContainerRestartRule, code int32) bool {
	if r.ExitCodes == nil {
		return false
	}
	in := slices.Contains(r.ExitCodes.Values, code)
	switch r.ExitCodes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return in
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !in
	}
	return false
}
