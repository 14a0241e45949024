package builtin

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// BenchmarkArrivalToLastMount prepares the volumes of the burstable reference pod: emptyDirs, a
// ConfigMap, a Secret, the downward API and two projected tokens. All objects are cached.
func BenchmarkArrivalToLastMount(b *testing.B) {
	pods, err := referencePods()
	if err != nil {
		b.Fatal(err)
	}
	n := newTestNode(b)
	n.objects.maps, n.objects.secrets = referenceObjects().maps, referenceObjects().secrets
	var ready, released time.Duration
	for i := range b.N {
		p := pods["ref-burstable"].DeepCopy()
		p.UID = types.UID(fmt.Sprint("uid-", i))
		began := time.Now()
		n.Want(p)
		n.until("ready", func() bool { return n.State(p.UID).Ready })
		ready += time.Since(began)
		began = time.Now()
		n.Release(pod.RefOf(p))
		n.until("released", func() bool { done, _ := n.Released(p.UID); return done })
		released += time.Since(began)
	}
	b.ReportMetric(float64(ready.Microseconds())/float64(b.N), "µs/ready")
	b.ReportMetric(float64(released.Microseconds())/float64(b.N), "µs/released")
}
