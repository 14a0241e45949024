package judge

import (
	v1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"keelson/internal/pods/admission"
	"keelson/internal/pods/pod"
)

// ReportLack sends an event about an update of a pod that needs a feature which this node does not declare. The rest
// of the update is applied.
func ReportLack(version *utilversion.Version, declared func() []string, events pod.Events) func(old, p *v1.Pod) {
	rules := admission.Rules{Version: version}
	return func(old, p *v1.Pod) {
		var node v1.Node
		node.Status.DeclaredFeatures = declared()
		if lacks := rules.Lack(old, p, &node); lacks != "" {
			events.Pod(p, "", v1.EventTypeWarning, pod.EventFeaturesLacking, lacks)
		}
	}
}
