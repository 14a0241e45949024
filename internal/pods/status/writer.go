package status

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// API are the writer's calls to the API server.
type API interface {
	// PatchPodStatus applies a strategic merge patch to the pod's status.
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// Config holds what a Writer is built from.
type Config struct {
	API      API // nil without an API server: statuses are kept, not sent
	Node     Node
	Parallel int // how many statuses are sent in parallel
	// OnChange is called for each pod whose status has changed. It must not block, nor call
	// the Writer. Optional.
	OnChange func(types.UID)
	// Events records a panic while a pod's status was sent. Optional.
	Events pod.Events
	Log    *slog.Logger
	Now    func() time.Time
}

// Writer publishes pod statuses.
type Writer struct {
	cfg         Config
	syncSeconds prometheus.Histogram

	mu       sync.Mutex
	entries  map[types.UID]*entry
	queue    []*entry // to be sent now
	calm     []*entry // low priority: one is sent per calmPeriod
	calmNext time.Time
	work     chan struct{} // capacity 1
}

// entry is the status of one pod. Writer.mu guards it.
type entry struct {
	uid         types.UID
	pod         *v1.Pod // of which status was computed
	ref         pod.Ref // of the API object; zero when there is none
	status      v1.PodStatus
	written     v1.PodStatus // the last status that this agent wrote, as in the API server's response
	version     string       // the resource version of written
	sent        bool         // the API server has status
	since       time.Time    // time of the oldest change that is not being sent; zero: none
	terminating bool         // the API object is being deleted
	held        *time.Timer  // runs while the change is delayed; nil: not begun
	ripe        bool         // the delay is over
	remove      bool         // the API object is to be deleted after status was sent
	removed     bool
	queued      bool // in the queue
	calm        bool // in Writer.calm
	busy        bool
	failing     bool         // the last attempt to send it has failed
	backoff     wait.Backoff // while it is failing
	again       *time.Timer  // ends the back-off after a failure; nil: none
	gone        bool

	seen     *v1.Pod     // the object as the watch showed it last; nil: not seen since ref was set
	urgent   bool        // another client has overwritten written
	repaired time.Time   // time of the last repair
	recheck  *time.Timer // runs until the next repair may be made; nil: none
}

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 10 * time.Second
	callLimit  = 30 * time.Second
)

// NewWriter makes a Writer. Nothing is sent before Run.
func NewWriter(cfg Config) *Writer {
	return &Writer{
		cfg:         cfg,
		syncSeconds: newSyncSeconds(),
		entries:     map[types.UID]*entry{},
		work:        make(chan struct{}, 1),
	}
}

// Publish computes the pod's status from f and queues it if it has changed. It never
// blocks.
func (w *Writer) Publish(f Facts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, known := w.entries[f.Pod.UID]
	if !known {
		e = &entry{uid: f.Pod.UID, written: f.stored(), sent: true}
		if !pod.IsStatic(f.Pod) {
			e.status = f.stored()
		}
		w.entries[f.Pod.UID] = e
	}
	if e.ref.UID == "" && f.Mirror != nil {
		e.status = w.priorStatus(f, e.status)
	}
	next := Project(w.cfg.Node, f, e.status, w.cfg.Now())
	changed := false
	if !equality.Semantic.DeepEqual(next, e.status) {
		changed = !sameOwn(next, e.status)
		if w.cfg.OnChange != nil {
			w.cfg.OnChange(f.Pod.UID)
		}
	}
	e.status = next
	if o := f.object(); o != nil {
		if ref := pod.RefOf(o); ref != e.ref {
			changed = changed || !sameOwn(next, o.Status) // a new mirror has no status yet
			e.ref, e.removed = ref, false
			e.written, e.version, e.seen, e.urgent = o.Status, o.ResourceVersion, nil, false
		}
		e.seeLocked(o)
		e.terminating = o.DeletionTimestamp != nil
		if f.Finished && !pod.IsStatic(f.Pod) && o.DeletionTimestamp != nil && ended(next.Phase) && !e.removed {
			e.remove = true
		}
	}
	if changed {
		e.sent = false
		if e.since.IsZero() {
			e.since = w.cfg.Now()
		}
	}
	e.pod = f.Pod
	w.reconcileLocked(e)
	w.enqueueLocked(e)
}

// priorStatus is the previous status of a static pod whose mirror pod is seen for the
// first time: the one that an earlier agent has written. If the pod had terminated and runs again,
// only its start time is kept.
func (w *Writer) priorStatus(f Facts, ours v1.PodStatus) v1.PodStatus {
	theirs := f.Mirror.Status
	switch {
	case theirs.StartTime == nil:
		return ours
	case ended(theirs.Phase) && Project(w.cfg.Node, f, ours, w.cfg.Now()).Phase != theirs.Phase:
		ours.StartTime = theirs.StartTime
		return ours
	}
	return theirs
}

// Get returns the last status of the pod.
func (w *Writer) Get(uid types.UID) (v1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.entries[uid]
	if !ok {
		return v1.PodStatus{}, false
	}
	return e.status, true
}

// Forget drops a removed pod.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.entries[uid]; ok {
		e.gone = true
		if e.recheck != nil {
			e.recheck.Stop()
		}
		delete(w.entries, uid)
	}
}

func (w *Writer) enqueueLocked(e *entry) {
	if w.cfg.API == nil || e.ref.UID == "" || e.queued || e.busy || e.gone || e.sent && !e.remove {
		return
	}
	switch presses := e.remove || e.urgent || e.failing || pressing(e.written, e.status, e.terminating); {
	case presses:
		e.queued, e.calm = true, false
		w.queue = append(w.queue, e)
	case e.calm:
		return
	case e.ripe:
		e.calm = true
		w.calm = append(w.calm, e)
	default:
		w.holdLocked(e)
		return
	}
	select {
	case w.work <- struct{}{}:
	default:
	}
}

// holdLocked delays a change, once.
func (w *Writer) holdLocked(e *entry) {
	if e.held != nil {
		return
	}
	e.held = panics.Again(w.cfg.Log, "statuses", hold, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		e.ripe = true
		w.enqueueLocked(e)
	})
}

// Run sends statuses until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	slots := make(chan struct{}, w.cfg.Parallel)
	var group sync.WaitGroup
	defer group.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.work:
		case <-timer.C:
		}
		for {
			e, later := w.next()
			if e == nil {
				timer.Stop()
				if later > 0 {
					timer.Reset(later)
				}
				break
			}
			select {
			case <-ctx.Done():
				return nil
			case slots <- struct{}{}:
			}
			group.Go(func() {
				defer func() { <-slots }()
				w.send(ctx, e)
			})
		}
	}
}

// next returns the entry to send now. If there is none, later is the time until one of low
// priority may be sent; zero if there is none.
func (w *Writer) next() (e *entry, later time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		e, w.queue[0], w.queue = w.queue[0], nil, w.queue[1:]
	}
	for e == nil && len(w.calm) > 0 {
		if !w.calm[0].calm || w.calm[0].gone { // sent in between, or removed
			w.calm[0], w.calm = nil, w.calm[1:]
			continue
		}
		if later = time.Until(w.calmNext); later > 0 {
			return nil, later
		}
		w.calmNext = time.Now().Add(calmPeriod)
		e, w.calm[0], w.calm = w.calm[0], nil, w.calm[1:]
	}
	if e != nil {
		e.queued, e.calm, e.busy = false, false, true
	}
	return e, 0
}

// send sends one pod's status, and then its deletion if that is due. Later changes are
// queued again.
func (w *Writer) send(ctx context.Context, e *entry) {
	w.mu.Lock()
	ref, status, unsent, remove := e.ref, e.status, !e.sent, e.remove
	since := e.since
	e.sent, e.ripe, e.urgent, e.since = true, false, false, time.Time{}
	if e.held != nil {
		e.held.Stop()
		e.held = nil
	}
	w.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var err error
	if unsent {
		err = panics.Try(w.cfg.Log, "statuses", func() error { return w.patchStatus(ctx, ref, status, e) })
		w.measure(e, since, err)
	}
	removed := false
	if err == nil && remove {
		err = panics.Try(w.cfg.Log, "statuses", func() error { return w.deletePod(ctx, ref) })
		removed = err == nil
	}
	w.settle(e, ref, unsent, removed, err)
	w.recordPanic(e, err)
}

// recordPanic records an event of the pod about a panic while its status was sent.
func (w *Writer) recordPanic(e *entry, err error) {
	var panicked *panics.Error
	if w.cfg.Events == nil || !errors.As(err, &panicked) {
		return
	}
	w.mu.Lock()
	p := e.pod
	w.mu.Unlock()
	w.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedSync,
		"error syncing pod: write its status: "+err.Error())
}

// patchStatus sends the status patch of a pod to the API server.
func (w *Writer) patchStatus(ctx context.Context, ref pod.Ref, status v1.PodStatus, e *entry) error {
	b, err := statusPatch(ref.UID, status)
	if err != nil {
		return err
	}
	p, err := w.cfg.API.PatchPodStatus(ctx, ref.Namespace, ref.Name, b)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.ref == ref {
		e.written, e.version = p.Status, p.ResourceVersion
	}
	return nil
}

// measure observes how long a status took to be written; after a failure the time
// continues.
func (w *Writer) measure(e *entry, since time.Time, err error) {
	if err == nil {
		w.syncSeconds.Observe(w.cfg.Now().Sub(since).Seconds())
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.since = since
}

// deletePod deletes the API object of a pod that has been released, after its last status was written.
func (w *Writer) deletePod(ctx context.Context, ref pod.Ref) error {
	err := w.cfg.API.DeletePod(ctx, ref.Namespace, ref.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &ref.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or another pod has its name
	}
	return err
}

func (w *Writer) settle(e *entry, ref pod.Ref, unsent, removed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.busy = false
	switch {
	case err == nil:
		e.failing = false
		if e.again != nil {
			e.again.Stop()
			e.again = nil
		}
		if removed && e.ref == ref {
			e.remove, e.removed = false, true
		}
	case apierrors.IsNotFound(err):
		// The object is deleted, and the source will remove the pod. A conflict is not evidence of
		// that: concurrent writers cause it, too.
		if e.ref == ref {
			e.remove, e.removed = false, true
		}
	case errors.Is(err, context.Canceled):
		return
	default:
		e.sent = e.sent && !unsent
		if e.again != nil {
			return // a change that was sent during a back-off does not extend it
		}
		first := !e.failing
		if first {
			e.failing, e.backoff = true, clock.Backoff(firstPause, maxPause)
		}
		if first {
			w.cfg.Log.Warn("failed to update pod status", "pod", ref.Namespace+"/"+ref.Name, "podUID", ref.UID,
				"err", err)
		}
		// After Run has ended the entry is queued and never sent, which is harmless.
		e.again = panics.Again(w.cfg.Log, "statuses", e.backoff.Step(), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			e.again, e.ripe = nil, true
			w.enqueueLocked(e)
		})
		return
	}
	w.reconcileLocked(e) // events that arrived during the PATCH
	w.enqueueLocked(e)
}
