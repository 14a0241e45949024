package podplan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// ShouldRestart decides whether a container that exited as c did is started again, unless its pod is terminated. Rules
// of the container come first, then its own policy (KEP-5307), then the pod's.
func (v View) ShouldRestart(kind pod.Kind, spec *v1.Container, c pod.Container) bool {
	if kind == pod.Ephemeral {
		return false
	}
	if v.stoppedForRestart(c) {
		return true
	}
	if r, ok := matchingRule(spec, c.ExitCode); ok {
		return r.Action == v1.ContainerRestartRuleActionRestart || restartsAll(r)
	}
	policy := v.Pod.Spec.RestartPolicy
	if spec.RestartPolicy != nil {
		policy = v1.RestartPolicy(*spec.RestartPolicy)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return !v.Succeeded(kind, c)
	default:
		// Always restarts an init container only after a failure: it is done once
		// it has succeeded.
		return kind != pod.Init || !v.Succeeded(kind, c)
	}
}

// Succeeded reports whether an exited container has succeeded. An init container that was OOM-killed has not, even if
// its shell exited with 0.
func (v View) Succeeded(kind pod.Kind, c pod.Container) bool {
	return c.ExitCode == 0 && !v.stoppedForRestart(c) && !(kind == pod.Init && c.Reason == "OOMKilled")
}

// matchingRule returns the first rule that matches the exit code.
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
