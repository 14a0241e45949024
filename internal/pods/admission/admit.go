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

// Rejection says why a pod may not run here.
type Rejection struct {
	Reason  string // for machines, CamelCase
	Message string // for people
	// Late, if it waits for anything, is all that is against the pod: it is to be judged again later.
	Late pod.Late
}

// Rules are what does not change from pod to pod.
type Rules struct {
	AllowedUnsafeSysctls []string // names, or prefixes that end in *
	PodLevelResources    bool     // the gate
	// Kernel is the kernel's version; nil if unknown: sysctls that need a minimum version count as unsafe then.
	Kernel *utilversion.Version
	// Version is the node's, whose declared features are compared; nil leaves
	// that check out.
	Version *utilversion.Version
	// AppArmor is nil if the host can enforce profiles, and else says why not.
	AppArmor error
	// Managers ask those who hand out CPUs, memory, devices and claims. Optional.
	Managers func(*v1.Pod) *Rejection
}

// Input is everything a judgement goes by.
type Input struct {
	Pod *v1.Pod
	// Others are the pods that take up room on the node: admitted, and not
	// ended. What they were granted is their specification.
	Others      []*v1.Pod
	Node        *v1.Node // nil when the node is not known
	Allocatable v1.ResourceList
	// Pressure are the pressures that the node is under.
	Pressure []v1.NodeConditionType
	// Leaving says that the node is shutting down.
	Leaving bool
	// Late is for which device plugins the pod has to wait.
	Late pod.Late
}

// Admissible reports whether the pod wants to be judged: it has not ended, and
// nobody has asked for its end.
func Admissible(p *v1.Pod) bool { return !pod.IsTerminal(p) && p.DeletionTimestamp == nil }

// Admit judges a pod; nil admits it.
func (r Rules) Admit(in Input) *Rejection {
	checks := []func(Input) *Rejection{
		pressure, r.sysctls, r.managers, nodeInfo, podOS, supplementalGroups, resources,
		affinity, nodeName, nodePorts, taints, r.appArmor, r.podResources, r.features, shutdown, late,
	}
	if pod.IsCritical(in.Pod) {
		// What others have can be taken from them; all else has to be right first.
		checks = append(slices.Delete(checks, 6, 7), resources)
	}
	for _, check := range checks {
		if no := check(in); no != nil {
			return no
		}
	}
	return nil
}

// pressure keeps pods away from a node that has to end some. Short memory is no
// reason against pods that ask for a share of it, nor against those that say that
// they can live with it.
func pressure(in Input) *Rejection {
	if len(in.Pressure) == 0 || pod.IsCritical(in.Pod) {
		return nil
	}
	if len(in.Pressure) == 1 && in.Pressure[0] == v1.NodeMemoryPressure {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if pod.QOS(in.Pod) != v1.PodQOSBestEffort || tolerates(in.Pod, taint) {
			return nil
		}
	}
	return &Rejection{Reason: ReasonEvicted, Message: fmt.Sprintf("The node had condition: %v. ", in.Pressure)}
}

func tolerates(p *v1.Pod, taint v1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t v1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taint, false) })
}

// managers reserves nothing for a pod that waits for some of it: all of it is placed together.
func (r Rules) managers(in Input) *Rejection {
	if r.Managers == nil || in.Late.Waits() {
		return nil
	}
	return r.Managers(in.Pod)
}

// late has a pod wait for device plugins against which there is nothing else.
func late(in Input) *Rejection {
	if !in.Late.Waits() {
		return nil
	}
	return &Rejection{Message: "waiting for " + in.Late.String(), Late: in.Late}
}

func shutdown(in Input) *Rejection {
	if !in.Leaving {
		return nil
	}
	return &Rejection{Reason: ReasonShutdown, Message: saysShutdown}
}

func nodeInfo(in Input) *Rejection {
	if in.Node == nil {
		return &Rejection{Reason: ReasonNodeInfo, Message: "Kubelet cannot get node info."}
	}
	return nil
}

func podOS(in Input) *Rejection {
	if os, ok := in.Pod.Labels[v1.LabelOSStable]; ok && os != runtime.GOOS {
		return &Rejection{Reason: ReasonOSLabel, Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if os := in.Pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return &Rejection{Reason: ReasonOSField, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

func supplementalGroups(in Input) *Rejection {
	sc := in.Pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if f := in.Node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &Rejection{Reason: ReasonSupplementalGroups, Message: "SupplementalGroupsPolicy=Strict is not supported in this node"}
}

func affinity(in Input) *Rejection {
	// A term that does not parse matches nothing, like one that does not match.
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(in.Node); ok && err == nil {
		return nil
	}
	return predicate(ReasonNodeAffinity, saysNodeAffinity)
}

func nodeName(in Input) *Rejection {
	if name := in.Pod.Spec.NodeName; name == "" || name == in.Node.Name {
		return nil
	}
	return predicate(ReasonNodeName, saysNodeName)
}

// taints refuses pods that a NoExecute taint would drive away at once. Static
// pods are the node's own and stay.
func taints(in Input) *Rejection {
	if pod.IsStatic(in.Pod) {
		return nil
	}
	_, untolerated := corev1.FindMatchingUntoleratedTaint(logr.Discard(), in.Node.Spec.Taints, in.Pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute
	}, false)
	if untolerated {
		return predicate(ReasonTaint, saysTaint)
	}
	return nil
}

func (r Rules) podResources(in Input) *Rejection {
	if r.PodLevelResources || !resource.IsPodLevelResourcesSet(in.Pod) {
		return nil
	}
	return &Rejection{Reason: ReasonPodResources, Message: "PodLevelResources feature gate is disabled"}
}

// features refuses pods that need what this node does not declare.
func (r Rules) features(in Input) *Rejection {
	if r.Version == nil {
		return nil
	}
	need, err := nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(&featuretypes.PodInfo{Spec: &in.Pod.Spec, Status: &in.Pod.Status}, r.Version)
	if err != nil {
		return &Rejection{Reason: ReasonFeature, Message: fmt.Sprintf("Failed to infer pod's feature requirements: %v", err)}
	}
	if lacks := lacking(need, in.Node); lacks != "" {
		return &Rejection{Reason: ReasonFeature, Message: lacks}
	}
	return nil
}

// Lack says which features a change of a pod needs that this node does not declare;
// empty if it declares all. The library compares init containers one by one: a static
// pod that names its UID may have others now, which no update at the API server can.
func (r Rules) Lack(old, p *v1.Pod, node *v1.Node) string {
	if r.Version == nil || len(old.Spec.InitContainers) != len(p.Spec.InitContainers) {
		return ""
	}
	need, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(
		&featuretypes.PodInfo{Spec: &old.Spec, Status: &old.Status}, &featuretypes.PodInfo{Spec: &p.Spec, Status: &p.Status}, r.Version)
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

func predicate(name, says string) *Rejection {
	return &Rejection{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, says)}
}
