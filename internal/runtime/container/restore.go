package container

import (
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
)

// restore fills in the fields of a stop that the caller lacks from the container's annotations: the
// pod's name, the preStop hook and the ports. Pod and Spec are never nil afterwards, also not
// beside an error.
func restore(s Stop) (Stop, error) {
	var errs []error
	a := s.Container.Annotations
	if s.Pod == nil {
		s.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: s.Ref.UID, Namespace: s.Ref.Namespace, Name: s.Ref.Name}}
	}
	if s.Spec == nil {
		c := &v1.Container{Name: s.Container.Name}
		if text := a[pod.AnnotationPreStopHandler]; text != "" {
			var h v1.LifecycleHandler
			if err := json.Unmarshal([]byte(text), &h); err != nil {
				errs = append(errs, fmt.Errorf("read annotation %s: %w", pod.AnnotationPreStopHandler, err))
			} else {
				c.Lifecycle = &v1.Lifecycle{PreStop: &h}
			}
		}
		if text := a[pod.AnnotationPorts]; text != "" {
			if err := json.Unmarshal([]byte(text), &c.Ports); err != nil {
				errs = append(errs, fmt.Errorf("read annotation %s: %w", pod.AnnotationPorts, err))
			}
		}
		s.Spec = c
	}
	return s, errors.Join(errs...)
}
