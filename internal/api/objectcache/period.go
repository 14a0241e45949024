package objectcache

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// defaultTTL is how long an object is served from the cache if the Node has no annotation that says so.
const defaultTTL = time.Minute

// Period is how long ConfigMaps and Secrets that are not watched go without being read again: a syncFrequency, and
// with the strategy Cache the time to live that the Node's annotation asks for, if that is longer.
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
