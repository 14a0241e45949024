package app

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/storage/object"
)

// defaultObjectTTL is how long an object may be taken from memory on a node whose
// cluster does not say.
const defaultObjectTTL = time.Minute

// objectPeriod is how long ConfigMaps and Secrets that are not watched go without
// being read again: a round of syncFrequency, and with the strategy Cache as long
// as the cluster asks its nodes to remember them, if that is more.
func (a *agent) objectPeriod() time.Duration {
	k := &a.cfg.Kubelet
	if object.Detection(k.ConfigMapAndSecretChangeDetectionStrategy) != object.Cache {
		return k.SyncFrequency.Duration
	}
	ttl := defaultObjectTTL
	if n, err := strconv.Atoi(a.node.Node().Annotations[v1.ObjectTTLAnnotationKey]); err == nil && n >= 0 {
		ttl = time.Duration(n) * time.Second
	}
	return max(ttl, k.SyncFrequency.Duration)
}
