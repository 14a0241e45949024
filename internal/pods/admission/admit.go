package admission

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"k8s.io/component-helpers/nodedeclaredfeatures"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"
	"k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// Rules are the configuration of admission, the same for all pods.
type Rules struct {
	AllowedUnsafeSysctls []string // names, or prefixes that end in *
	PodLevelResources    bool     // the gate
	// Kernel is the kernel's version; nil if unknown: sysctls that need a minimum version count as unsafe then.
	Kernel *utilversion.Version
	// Version is the node's, for the check of declared features; nil omits that check.
	Version *utilversion.Version
	// AppArmor is nil if the host can enforce profiles, else the reason.
	AppArmor error
	// Managers allocates CPUs, memory and devices through the resource managers. Optional.
	Managers func(*v1.Pod) *pod.Rejection
}

// Input is the input of one decision.
type Input struct {
	Pod *v1.Pod
	// Others are the admitted pods that have not terminated. Their specifications have their
	// allocated resources.
	Others      []*v1.Pod
	Node        *v1.Node // nil when the node is not known
	Allocatable v1.ResourceList
	// Pressure are the node's pressure conditions that are true.
	Pressure []v1.NodeConditionType
	// Leaving: the node is shutting down.
	Leaving bool
	// Late names the device plugins that the pod has to wait for.
	Late pod.Late
}

// Admissible reports whether admission is decided for the pod: its phase is not terminal,
// and its deletion was not requested.
func Admissible(p *v1.Pod) bool { return !pod.IsTerminal(p) && p.DeletionTimestamp == nil }

// Admit decides on a pod; nil admits it.
func (r Rules) Admit(in Input) *pod.Rejection {
	checks := []func(Input) *pod.Rejection{
		pressure, r.sysctls, r.managers, nodeInfo, podOS, supplementalGroups, resources,
		affinity, nodeName, nodePorts, taints, r.appArmor, r.podResources, r.features, shutdown, late,
	}
	if pod.IsCritical(in.Pod) {
		// Resources can be preempted, so all other checks come first.
		checks = append(slices.Delete(checks, 6, 7), resources)
	}
	for _, check := range checks {
		if no := check(in); no != nil {
			return no
		}
	}
	return nil
}

// pressure refuses pods while the node has a pressure condition. Under memory pressure alone, pods of other classes
// than BestEffort are admitted, and those that tolerate its taint.
func pressure(in Input) *pod.Rejection {
	if len(in.Pressure) == 0 || pod.IsCritical(in.Pod) {
		return nil
	}
	if len(in.Pressure) == 1 && in.Pressure[0] == v1.NodeMemoryPressure {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if pod.QOS(in.Pod) != v1.PodQOSBestEffort || tolerates(in.Pod, taint) {
			return nil
		}
	}
	return &pod.Rejection{Reason: ReasonEvicted, Message: fmt.Sprintf("The node had condition: %v. ", in.Pressure)}
}

func tolerates(p *v1.Pod, taint v1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t v1.Toleration) bool {
		return t.ToleratesTaint(logr.Discard(),
			&taint, false)
	})
}

// managers allocates nothing for a pod that waits for a device plugin: all resources are
// aligned together.
func (r Rules) managers(in Input) *pod.Rejection {
	if r.Managers == nil || in.Late.Waits() {
		return nil
	}
	return r.Managers(in.Pod)
}

// late makes a pod wait for device plugins if all other checks succeed.
func late(in Input) *pod.Rejection {
	if !in.Late.Waits() {
		return nil
	}
	return &pod.Rejection{Message: "waiting for " + in.Late.String(), Late: in.Late}
}

func shutdown(in Input) *pod.Rejection {
	if !in.Leaving {
		return nil
	}
	return &pod.Rejection{Reason: ReasonShutdown, Message: saysShutdown}
}

func nodeInfo(in Input) *pod.Rejection {
	if in.Node == nil {
		return &pod.Rejection{Reason: ReasonNodeInfo, Message: "Kubelet cannot get node info."}
	}
	return nil
}

func podOS(in Input) *pod.Rejection {
	if os, ok := in.Pod.Labels[v1.LabelOSStable]; ok && os != runtime.GOOS {
		return &pod.Rejection{
			Reason:  ReasonOSLabel,
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	if os := in.Pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return &pod.Rejection{
			Reason:  ReasonOSField,
			Message: "Failed to admit pod as the OS field doesn't match node OS",
		}
	}
	return nil
}

func supplementalGroups(in Input) *pod.Rejection {
	sc := in.Pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil ||
		*sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if f := in.Node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &pod.Rejection{
		Reason:  ReasonSupplementalGroups,
		Message: "SupplementalGroupsPolicy=Strict is not supported in this node",
	}
}

func affinity(in Input) *pod.Rejection {
	// A term that does not parse does not match.
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(in.Node); ok && err == nil {
		return nil
	}
	return predicate(ReasonNodeAffinity, saysNodeAffinity)
}

func nodeName(in Input) *pod.Rejection {
	if name := in.Pod.Spec.NodeName; name == "" || name == in.Node.Name {
		return nil
	}
	return predicate(ReasonNodeName, saysNodeName)
}

// taints refuses pods that a NoExecute taint would evict at once. Static pods are exempt.
func taints(in Input) *pod.Rejection {
	if pod.IsStatic(in.Pod) {
		return nil
	}
	_, untolerated := corev1.FindMatchingUntoleratedTaint(logr.Discard(), in.Node.Spec.Taints, in.Pod.Spec.Tolerations,
		func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoExecute
		}, false)
	if untolerated {
		return predicate(ReasonTaint, saysTaint)
	}
	return nil
}

func (r Rules) podResources(in Input) *pod.Rejection {
	if r.PodLevelResources || !resource.IsPodLevelResourcesSet(in.Pod) {
		return nil
	}
	return &pod.Rejection{Reason: ReasonPodResources, Message: "PodLevelResources feature gate is disabled"}
}

// features refuses pods that need features which this node does not declare.
func (r Rules) features(in Input) *pod.Rejection {
	if r.Version == nil {
		return nil
	}
	need, err := nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(&featuretypes.PodInfo{
		Spec:   &in.Pod.Spec,
		Status: &in.Pod.Status,
	}, r.Version)
	if err != nil {
		return &pod.Rejection{
			Reason:  ReasonFeature,
			Message: fmt.Sprintf("Failed to infer pod's feature requirements: %v", err),
		}
	}
	if lacks := lacking(need, in.Node); lacks != "" {
		return &pod.Rejection{Reason: ReasonFeature, Message: lacks}
	}
	return nil
}

// Lack names the features that a change of a pod needs and this node does not declare; empty if there are none. The
// library compares init containers by index: an update at the API server cannot change how many there are, but that of
// a static pod with a UID in its manifest can.
func (r Rules) Lack(old, p *v1.Pod, node *v1.Node) string {
	if r.Version == nil || len(old.Spec.InitContainers) != len(p.Spec.InitContainers) {
		return ""
	}
	need, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(
		&featuretypes.PodInfo{Spec: &old.Spec, Status: &old.Status},
		&featuretypes.PodInfo{Spec: &p.Spec, Status: &p.Status}, r.Version)
	if err != nil {
		return fmt.Sprintf("infer the node features that the change needs: %v", err)
	}
	return lacking(need, node)
}

func lacking(need nodedeclaredfeatures.FeatureSet, node *v1.Node) string {
	match, err := nodedeclaredfeatures.DefaultFramework.MatchNode(need, node)
	switch {
	case err != nil:
		return fmt.Sprintf("Failed to match pod's feature requirements against the node: %v", err)
	case match.IsMatch:
		return ""
	}
	return "Pod requires node features that are not available: " + strings.Join(match.UnsatisfiedRequirements, ", ")
}

func predicate(name, says string) *pod.Rejection {
	return &pod.Rejection{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, says)}
}
