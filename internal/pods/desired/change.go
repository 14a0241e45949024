package desired

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
)

// classify names the change from one version of a pod to the next; "" when nothing
// relevant differs.
func classify(old, p *v1.Pod) string {
	same := apiequality.Semantic.DeepEqual(old.Spec, p.Spec) && maps.Equal(old.Labels, p.Labels) &&
		maps.Equal(foreign(old.Annotations), foreign(p.Annotations)) && sameDeletion(old, p)
	switch {
	case same && apiequality.Semantic.DeepEqual(old.Status, p.Status):
		return ""
	case same:
		return changeReconcile
	case p.DeletionTimestamp != nil:
		return changeDelete
	}
	return changeUpdate
}

func sameDeletion(a, b *v1.Pod) bool {
	return sameTime(a.DeletionTimestamp, b.DeletionTimestamp) &&
		apiequality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds)
}

func sameTime(a, b *metav1.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

// foreign returns the annotations without those that the agent itself sets.
func foreign(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range annotations {
		switch k {
		case pod.AnnotationConfigSource, pod.AnnotationConfigSeen, pod.AnnotationConfigMirror:
		default:
			out[k] = v
		}
	}
	return out
}
