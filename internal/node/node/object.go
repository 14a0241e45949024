package node

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
)

// Identity is what the node is called and created with.
type Identity struct {
	Name       string
	Hostname   string
	OS, Arch   string
	Labels     map[string]string // of the administrator
	Taints     []v1.Taint
	ProviderID string
	External   bool   // a cloud controller initialises the node
	ProvidedIP string // the addresses that --node-ip names, for the cloud controller
	// AttachesItself says that no controller is to attach volumes to this node.
	AttachesItself bool
}

// object is a new node, without a status.
func (i Identity) object() *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: i.Name, Labels: i.defaultLabels(), Annotations: i.annotations()},
		Spec:       v1.NodeSpec{ProviderID: i.ProviderID, Taints: slices.Clone(i.Taints)},
	}
	maps.Copy(n.Labels, i.Labels)
	if i.External {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: taintExternalCloud, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	return n
}

func (i Identity) defaultLabels() map[string]string {
	return map[string]string{
		labelHostname: i.Hostname,
		labelOS:       i.OS, labelBetaOS: i.OS,
		labelArch: i.Arch, labelBetaArch: i.Arch,
	}
}

func (i Identity) annotations() map[string]string {
	a := map[string]string{}
	if !i.AttachesItself {
		a[annotationAttachDetach] = "true"
	}
	if i.External && i.ProvidedIP != "" {
		a[annotationProvidedIP] = i.ProvidedIP
	}
	return a
}

// adopt is the node object that was there, brought in line with what this agent
// answers for: default labels and those of where the machine stands, with the administrator's values where there
// are such, annotations, and the huge page sizes of the
// machine. Taints and all other labels are set at creation only; from
// then on they are the cluster's. resetExtended zeroes the extended resources of
// a machine that was replaced.
func (i Identity) adopt(existing *v1.Node, capacity v1.ResourceList, resetExtended bool) *v1.Node {
	n := existing.DeepCopy()
	n.Labels = i.relabel(n.Labels)
	n.Annotations = merged(i.healAnnotations(n.Annotations), i.annotations())
	if i.AttachesItself {
		delete(n.Annotations, annotationAttachDetach)
	}
	for _, l := range []v1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		for name := range l {
			_, have := capacity[name]
			switch {
			case strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) && !have:
				delete(l, name)
			case resetExtended && pod.IsExtended(name):
				l[name] = *zero()
			}
		}
	}
	return n
}

// relabel is the labels of a node that was there. An empty value takes its label off.
func (i Identity) relabel(labels map[string]string) map[string]string {
	want := merged(i.defaultLabels(), i.Labels)
	labels = merged(labels, nil)
	for _, l := range []string{
		labelHostname, labelOS, labelBetaOS, labelArch, labelBetaArch,
		labelZone, labelRegion, labelBetaZone, labelBetaRegion, labelInstanceType, labelBetaInstanceType,
	} {
		switch value, set := want[l]; {
		case !set:
		case value == "":
			delete(labels, l)
		default:
			labels[l] = value
		}
	}
	return labels
}

// heal brings back the labels that say what machine this is. As upstream, the other
// default labels are set at registrations alone: the administrator may have better ones.
func (i Identity) heal(labels map[string]string) map[string]string {
	return merged(labels, map[string]string{labelOS: i.OS, labelArch: i.Arch})
}

// healAnnotations sets the addresses of --node-ip, which an external cloud provider reads at any time, or removes what
// an earlier agent left.
func (i Identity) healAnnotations(annotations map[string]string) map[string]string {
	healed := merged(annotations, nil)
	delete(healed, annotationProvidedIP)
	if i.External && i.ProvidedIP != "" {
		healed[annotationProvidedIP] = i.ProvidedIP
	}
	return healed
}

// healed reports whether nothing is to be healed.
func (i Identity) healed(n *v1.Node) bool {
	return maps.Equal(n.Labels, i.heal(n.Labels)) &&
		n.Annotations[annotationProvidedIP] == i.healAnnotations(n.Annotations)[annotationProvidedIP]
}

func merged(into, from map[string]string) map[string]string {
	into = maps.Clone(into)
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}

func zero() *resource.Quantity { return resource.NewQuantity(0, resource.DecimalSI) }

// changed reports whether there is news in the status beside its heartbeats.
func changed(a, b v1.NodeStatus) bool {
	a, b = *a.DeepCopy(), *b.DeepCopy()
	for _, st := range []*v1.NodeStatus{&a, &b} {
		for i := range st.Conditions {
			st.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(a, b)
}
