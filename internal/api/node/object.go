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

// Identity is the identity of the node and what it is created with.
type Identity struct {
	Name       string
	Hostname   string
	OS, Arch   string
	Labels     map[string]string // of the configuration
	Taints     []v1.Taint
	ProviderID string
	External   bool   // a cloud controller initializes the node
	ProvidedIP string // the value of --node-ip, for the cloud controller
	// AttachesItself disables the attach-detach controller for this node.
	AttachesItself bool
}

// object returns a new node object without a status.
func (i Identity) object() *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: i.Name, Labels: i.defaultLabels(), Annotations: i.annotations()},
		Spec:       v1.NodeSpec{ProviderID: i.ProviderID, Taints: slices.Clone(i.Taints)},
	}
	maps.Copy(n.Labels, i.Labels)
	if i.External {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{
			Key:    taintExternalCloud,
			Value:  "true",
			Effect: v1.TaintEffectNoSchedule,
		})
	}
	return n
}

func (i Identity) defaultLabels() map[string]string {
	return map[string]string{
		labelHostname: i.Hostname,
		labelOS:       i.OS,
		labelBetaOS:   i.OS,
		labelArch:     i.Arch,
		labelBetaArch: i.Arch,
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

// adopt returns an existing node object, updated by this agent: default labels and topology labels with the values of
// the configuration, annotations, and the huge page sizes of the machine. Taints and other labels are set at creation
// only. resetExtended sets the extended resources of a replaced machine to zero.
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

// relabel returns the labels of an existing node. A label with an empty value is removed.
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

// heal restores the labels of operating system and architecture. As upstream, other default labels are set at
// registration only.
func (i Identity) heal(labels map[string]string) map[string]string {
	return merged(labels, map[string]string{labelOS: i.OS, labelArch: i.Arch})
}

// healAnnotations sets the annotation with --node-ip, which an external cloud provider may read at any time, or removes
// that of an earlier agent.
func (i Identity) healAnnotations(annotations map[string]string) map[string]string {
	healed := merged(annotations, nil)
	delete(healed, annotationProvidedIP)
	if i.External && i.ProvidedIP != "" {
		healed[annotationProvidedIP] = i.ProvidedIP
	}
	return healed
}

// healed reports whether heal and healAnnotations would change nothing.
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

// changed reports whether two statuses differ in more than their heartbeats.
func changed(a, b v1.NodeStatus) bool {
	a, b = *a.DeepCopy(), *b.DeepCopy()
	for _, st := range []*v1.NodeStatus{&a, &b} {
		for i := range st.Conditions {
			st.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(a, b)
}
