package watch

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Without an API server there are no RuntimeClasses: a pod that names one is refused, others have the default handler.
func TestRuntimeClassesWithoutAnAPIServer(t *testing.T) {
	var none *RuntimeClasses
	isolated := "isolated"
	if got, err := none.Handler(&v1.Pod{Spec: v1.PodSpec{RuntimeClassName: &isolated}}); got != "" || err == nil ||
		err.Error() != `find RuntimeClass "isolated": no API server configured` {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := none.Handler(&v1.Pod{}); got != "" || err != nil {
		t.Errorf("a pod without a class: %q, %v", got, err)
	}
}
