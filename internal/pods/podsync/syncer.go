package podsync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Syncer runs one worker for each pod that a source has, or that has traces in the runtime or on the disk.
type Syncer struct {
	cfg     Config
	metrics *metrics
	board   board
	names   names
	checked atomic.Pointer[checkup]

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	workers map[types.UID]*worker
	group   sync.WaitGroup
}

// New makes a Syncer. Nothing happens before Run.
func New(cfg Config) *Syncer {
	return &Syncer{
		cfg:     cfg,
		metrics: newMetrics(),
		workers: map[types.UID]*worker{},
	}
}

// Run wakes every known pod once and then serves wake-ups until ctx ends. It
// returns when all workers have ended; running pods are left as they are.
func (s *Syncer) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	s.WakeAll()
	defer s.group.Wait()
	tick := time.NewTicker(s.cfg.TurnPatience / checkups)
	defer tick.Stop()
	for {
		s.check()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Wake triggers a sync of the pod. It never blocks.
func (s *Syncer) Wake(uid types.UID) { s.withWorker(uid, (*mailbox).wake) }

// Adopt creates workers for orphaned pods, of which only traces on the node are left, such as a directory or a cgroup.
// The workers clean them up, unless a source has the pod.
func (s *Syncer) Adopt(uids []types.UID) {
	for _, uid := range uids {
		s.withWorker(uid, (*mailbox).adopt)
	}
}

// Force records that the pod's object was removed from the API server while the pod was being deleted: the pod has no
// grace period left.
func (s *Syncer) Force(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.workers[uid]; ok {
		w.mail.force()
	}
}

// withWorker puts something into the mailbox of the pod's worker, which is made if there is none. It returns nil before
// Run and after it.
func (s *Syncer) withWorker(uid types.UID, put func(*mailbox)) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil || s.ctx.Err() != nil {
		return nil
	}
	w, ok := s.workers[uid]
	if !ok {
		w = newWorker(s, uid)
		s.workers[uid] = w
		ctx := s.ctx
		s.group.Go(func() { w.run(ctx) })
	}
	put(w.mail)
	return w
}

// WakeAll triggers a sync of every pod that a source, the runtime or a worker has.
func (s *Syncer) WakeAll() {
	uids := map[types.UID]bool{}
	for _, uid := range s.cfg.Desired.UIDs() {
		uids[uid] = true
	}
	for _, uid := range s.cfg.Observed.UIDs() {
		uids[uid] = true
	}
	s.mu.Lock()
	for uid := range s.workers {
		uids[uid] = true
	}
	s.mu.Unlock()
	for uid := range uids {
		s.Wake(uid)
	}
}

// Knows reports whether the pod has a worker; what belongs to a pod without a worker may be removed.
func (s *Syncer) Knows(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.workers[uid]
	return ok
}

// leave drops a worker that has nothing left to do, unless something was put into its mailbox
// meanwhile. A pod that its source has again gets a new worker.
func (s *Syncer) leave(w *worker) bool {
	s.mu.Lock()
	if !w.mail.empty() {
		s.mu.Unlock()
		return false
	}
	delete(s.workers, w.uid)
	s.board.remove(w.uid)
	s.mu.Unlock()
	if spec, _, again := s.cfg.Desired.Get(w.uid); again {
		s.metrics.restarted.WithLabelValues(staticLabel(spec)).Inc()
		s.Wake(w.uid)
	}
	return true
}
