package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/footprint"
	"keelson/internal/host/shutdown"
	"keelson/internal/pods/podsync"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/eviction"
	"keelson/internal/serve/podsapi"
	"keelson/internal/storage/volume"
)

// workers gives parts that are built earlier access to the pods' workers. Connect is called once, before anything runs.
type workers struct {
	syncer  *podsync.Syncer
	leaving *shutdown.Watcher
	mover   *cpu.Reconciler // nil: no container has CPUs of its own
	podsAPI *podsapi.Server // nil: the gate is off
	tidier  *footprint.Tidier
}

// Connect sets the parts.
func (w *workers) Connect(s *podsync.Syncer, l *shutdown.Watcher, m *cpu.Reconciler, api *podsapi.Server) {
	w.syncer, w.leaving, w.mover, w.podsAPI = s, l, m, api
}

// Wake triggers a sync of one pod. It never blocks.
func (w *workers) Wake(uid types.UID) {
	w.tidier.Stir()
	w.syncer.Wake(uid)
	w.leaving.Trigger()
}

// WakeAll triggers a sync of all pods.
func (w *workers) WakeAll() { w.syncer.WakeAll() }

// Observed triggers a sync of a pod whose containers changed, and moves running containers to their CPUs.
func (w *workers) Observed(uid types.UID) {
	w.Wake(uid)
	w.MoveContainers()
}

// MoveContainers triggers the update of running containers to the CPUs that they may use.
func (w *workers) MoveContainers() {
	if w.mover != nil {
		w.mover.Trigger()
	}
}

// Published reports a change of a pod or its status to the clients that watch the pods API. It never blocks.
func (w *workers) Published(uid types.UID) {
	if w.podsAPI != nil {
		w.podsAPI.Changed(uid)
	}
}

// Desired triggers a sync of a pod that a source added, changed or removed.
func (w *workers) Desired(uid types.UID) {
	w.Published(uid)
	w.Wake(uid)
}

// Devices triggers a sync of a pod when the health of its devices changes. A pod without a worker may be gone: the
// search for orphans finds it once all pods are known.
func (w *workers) Devices(uid types.UID) {
	if w.syncer.Knows(uid) {
		w.Wake(uid)
	}
}

// Force ends the grace period of a pod.
func (w *workers) Force(uid types.UID) { w.syncer.Force(uid) }

// Terminate terminates a pod before the machine shuts down. The channel is closed when the pod holds nothing on the
// node.
func (w *workers) Terminate(uid types.UID, grace time.Duration) <-chan struct{} {
	return w.syncer.EndForShutdown(uid, grace, shutdown.ReasonTerminated, shutdown.MessageEnded)
}

// Shutdown triggers a sync of all pods when a shutdown was cancelled: containers were not started during it.
func (w *workers) Shutdown() {
	if !w.leaving.ShuttingDown() {
		w.syncer.WakeAll()
	}
}

// MayClaim reports whether a static pod may run under its full name.
func (w *workers) MayClaim(p *v1.Pod) bool { return w.syncer.MayClaim(p) }

// Holds reports whether a pod runs, or may run, under a full name.
func (w *workers) Holds(fullName string) bool { return w.syncer.Holds(fullName) }

// HoldsOlder reports whether a pod other than this one runs, or may run, under a full name.
func (w *workers) HoldsOlder(fullName string, than types.UID) bool {
	return w.syncer.HoldsOlder(fullName, than)
}

// conditions gives the node and admission access to the parts that evict pods and shut the node down. Connect is called
// once, before anything runs.
type conditions struct {
	evictor *eviction.Manager
	leaving *shutdown.Watcher
}

// Connect sets the parts.
func (c *conditions) Connect(e *eviction.Manager, l *shutdown.Watcher) { c.evictor, c.leaving = e, l }

// Pressures are the pressures on the node, as far as they are known.
func (c *conditions) Pressures() []v1.NodeConditionType { return c.evictor.Pressures() }

// Leaving reports whether the machine is shutting down.
func (c *conditions) Leaving() bool { return c.leaving.ShuttingDown() }

// mounts gives parts that are built earlier access to the pods' volumes. Connect is called once, before anything runs.
type mounts struct {
	volumes *volume.Manager
	workers *workers
}

// Connect sets the part.
func (m *mounts) Connect(v *volume.Manager) { m.volumes = v }

// ObjectChanged triggers the volumes of pods that show an object, and a sync of the pods, whose containers may wait for
// it.
func (m *mounts) ObjectChanged(pods []types.UID, kind, name string) {
	m.volumes.ObjectChanged(pods, kind, name)
	for _, uid := range pods {
		m.workers.Wake(uid)
	}
}

// CertificateChanged triggers the volumes of a pod that show a certificate.
func (m *mounts) CertificateChanged(uid types.UID, name string) {
	m.volumes.ObjectChanged([]types.UID{uid}, volume.Certificate, name)
}

// Again retries the volumes of a pod that wait.
func (m *mounts) Again(uid types.UID) { m.volumes.Again(uid) }

// Count counts an operation of a volume plugin.
func (m *mounts) Count(plugin string, migrated bool, operation string, took time.Duration, err error) {
	m.volumes.Count(plugin, migrated, operation, took, err)
}

// once delays a part until all of the channels are closed.
func once(run func(context.Context) error, after ...<-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, c := range after {
			select {
			case <-ctx.Done():
				return nil
			case <-c:
			}
		}
		return run(ctx)
	}
}
