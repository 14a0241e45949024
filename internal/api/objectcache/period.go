package objectcache

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// defaultTTL is how long an object is served from the cache if the Node has no annotation with a TTL.
const defaultTTL = time.Minute

// Period returns a function for the interval between two reads of a ConfigMap or Secret that is not watched:
// syncFrequency, or with the strategy Cache the TTL in the Node's annotation, if that is longer.
func Period(detect Detection, syncFrequency time.Duration, node func() *v1.Node) func() time.Duration {
	return func() time.Duration {
		if detect != Cache {
			return syncFrequency
		}
		ttl := defaultTTL
		if n, err := strconv.Atoi(node().Annotations[v1.ObjectTTLAnnotationKey]); err == nil && n >= 0 {
			ttl = time.Duration(n) * time.Second
		}
		return max(ttl, syncFrequency)
	}
}
