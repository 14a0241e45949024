package podsync

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
	"keelson/test/kit/eventlog"
)

// node is a node on which every call succeeds at once. Tests embed it and replace the parts that are to fail.
type node struct {
	mu        sync.Mutex
	have      pod.Runtime
	published []status.Facts
}

// Runtime and sources.
func (n *node) Get(types.UID) (pod.Runtime, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.have, true
}
func (n *node) UIDs() []types.UID { return nil }
func (n *node) Synced() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
func (n *node) LinkLogs(pod.Runtime) error                     { return nil }
func (n *node) NextAttempt(pod.Ref, string) (int, error)       { return 0, nil }
func (n *node) NotStarted(pod.Kind, string)                    {}
func (n *node) Ensure(*v1.Pod, *v1.Container, int) ImageResult { return ImageResult{} }

// Status and probes.
func (n *node) Publish(f status.Facts)                        { n.published = append(n.published, f) }
func (n *node) Sync(podplan.View, []string, bool)             {}
func (n *node) Result(*v1.Pod, pod.Container) status.Probe    { return status.Probe{} }
func (n *node) Forget(types.UID)                              {}
func (n *node) Health(*v1.Pod) map[string][]v1.ResourceStatus { return nil }

// Allocation.
func (n *node) Admit(context.Context, *v1.Pod, bool) allocation.Verdict { return allocation.Verdict{} }
func (n *node) Refused(string)                                          {}
func (n *node) Allocate(p *v1.Pod) (*v1.Pod, bool)                      { return p, true }
func (n *node) Actuated(p *v1.Pod) *v1.Pod                              { return p }
func (n *node) Conditions(types.UID) []v1.PodCondition                  { return nil }
func (n *node) Account() []*v1.Pod                                      { return nil }
func (n *node) Vacate(types.UID)                                        {}
func (n *node) Confirmed(*v1.Pod) bool                                  { return true }
func (n *node) Confirm(context.Context, *v1.Pod) *pod.Rejection         { return nil }
func (n *node) Late(*v1.Pod) pod.Late                                   { return pod.Late{} }

// Resizes.
func (n *node) Gap(*v1.Pod, pod.Runtime) allocation.Gap { return allocation.Gap{} }
func (n *node) Progress(*v1.Pod, bool)                  {}
func (n *node) Tried(*v1.Pod, time.Duration, error)     {}
func (n *node) Failing(types.UID) bool                  { return false }

// Disk.
func (n *node) Make(types.UID) error                                 { return nil }
func (n *node) Remove(context.Context, pod.Ref) error                { return nil }
func (n *node) NoteRestarts(types.UID, Restarts) error               { return nil }
func (n *node) Restarts(types.UID) (Restarts, error)                 { return Restarts{}, nil }
func (n *node) NoteEviction(types.UID, podplan.EvictionRecord) error { return nil }
func (n *node) Eviction(types.UID) (podplan.EvictionRecord, bool, error) {
	return podplan.EvictionRecord{}, false, nil
}

// Cgroups and objects.
func (n *node) RemovePod(context.Context, types.UID) error { return nil }
func (n *node) ReducePod(types.UID) error                  { return nil }
func (n *node) Register(*v1.Pod)                           {}
func (n *node) Unregister(types.UID)                       {}

// prepared are volumes or claims that need nothing.
type prepared struct{}

func (prepared) Want(*v1.Pod)                     {}
func (prepared) Ready(types.UID) (bool, error)    { return true, nil }
func (prepared) RetryAt(types.UID) time.Time      { return time.Time{} }
func (prepared) Release(pod.Ref)                  {}
func (prepared) Released(types.UID) (bool, error) { return true, nil }

// relister shows what a node has at once.
type relister struct{ *node }

func (r relister) Confirm(context.Context, types.UID, pod.Effect) error { return nil }
func (r relister) Refresh(context.Context, types.UID) (pod.Runtime, error) {
	return r.have, nil
}

// given are resources that need no release.
type given struct{}

func (given) Release(types.UID) {}

// on makes the syncer use a node.
func (m *measured) on(n *node) *measured {
	cfg := &m.cfg
	cfg.Observed, cfg.Images, cfg.Objects, cfg.Status, cfg.Probes = n, n, n, n, n
	cfg.Runtime = Runtime{Logs: n, Relister: relister{n}}
	cfg.Volumes = Volumes{Preparer: prepared{}, Releaser: prepared{}}
	cfg.Claims = Claims{Preparer: prepared{}, Releaser: prepared{}, HealthReporter: n}
	cfg.Cgroups.CgroupRemover = n
	cfg.Allocation = Allocation{Admitter: n, Allocated: n, Resizes: n, Occupancy: n}
	cfg.Resources = Resources{Confirmer: n, ResourceReleaser: given{}, HealthReporter: n}
	cfg.Disk = Disk{Dirs: n, RestartRecords: n, EvictionRecords: n}
	cfg.Node = Node{
		NetworkReady:    func() error { return nil },
		HostIPs:         func() []string { return nil },
		AddressMismatch: func() string { return "" },
	}
	cfg.Events = eventlog.Discard{}
	return m
}

// turn runs one turn of a worker with its mail.
func (m *measured) turn(w *worker) (gone bool) {
	m.t.Helper()
	_, gone = w.safeTurn(m.t.Context(), w.mail.take())
	if w.hold.pause > 0 {
		m.t.Fatal("the turn panicked")
	}
	return gone
}

// settled runs a turn, and waits for the tasks that it starts.
func (m *measured) settled(w *worker) {
	m.t.Helper()
	m.turn(w)
	w.tasks.group.Wait()
}
