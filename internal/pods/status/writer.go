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
	"k8s.io/utils/ptr"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

// API is what the writer needs of the API server.
type API interface {
	// PatchPodStatus applies a strategic merge patch to the pod's status.
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// Config holds what a Writer is built from.
type Config struct {
	API      API // nil without an API server: statuses are kept and shown, not sent
	Node     Node
	Parallel int // how many pods' statuses may be under way at once
	// OnChange is told of each pod whose status is another. It must not block, nor
	// ask the Writer. Optional.
	OnChange func(types.UID)
	// Events records that the agent panicked at the status of a pod. Optional.
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
	calm     []*entry // to be sent when there is time
	calmNext time.Time
	work     chan struct{} // capacity 1
}

// entry is what is to be said of one pod. Writer.mu guards it.
type entry struct {
	uid     types.UID
	pod     *v1.Pod // as its status was last made
	ref     pod.Ref // of the API object; zero when there is none
	status  v1.PodStatus
	told    v1.PodStatus // the last status that this agent wrote, as in the API server's response
	version string       // the resource version of told
	sent    bool         // the API server has status
	since   time.Time    // when the oldest change that is not under way was seen; zero: there is none
	going   bool         // the API object is being deleted
	held    *time.Timer  // runs while what is to be sent may wait for more; nil: not begun
	ripe    bool         // it has waited long enough
	remove  bool         // the API object is to be deleted once status was sent
	removed bool
	queued  bool // in the queue
	calm    bool // among the calm
	busy    bool
	pause   time.Duration
	again   *time.Timer // ends the pause after a failure; nil: there is none
	gone    bool

	seen     *v1.Pod     // the object as the watch showed it last; nil: not since ref is what it is
	urgent   bool        // another client has overwritten told
	repaired time.Time   // when that was last to be put right
	recheck  *time.Timer // runs until it may be put right once more; nil: that is not waited for
}

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 10 * time.Second
	callLimit  = 30 * time.Second
)

// NewWriter makes a Writer. Nothing is sent before Run.
func NewWriter(cfg Config) *Writer {
	return &Writer{cfg: cfg, syncSeconds: newSyncSeconds(), entries: map[types.UID]*entry{}, work: make(chan struct{}, 1)}
}

// Publish makes the pod's status from f and has it sent if it says anything new.
// It never blocks.
func (w *Writer) Publish(f Facts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, known := w.entries[f.Pod.UID]
	if !known {
		e = &entry{uid: f.Pod.UID, status: f.stored(), told: f.stored(), sent: true}
		w.entries[f.Pod.UID] = e
	}
	if e.ref.UID == "" && f.Mirror != nil {
		e.status = w.told(f, e.status)
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
			e.told, e.version, e.seen, e.urgent = o.Status, o.ResourceVersion, nil, false
		}
		e.seeLocked(o)
		e.going = o.DeletionTimestamp != nil
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

// told is what goes before the next status of a static pod whose mirror is seen for the first
// time: what the agent before this one told of it, unless the pod has ended since and lives
// again.
func (w *Writer) told(f Facts, ours v1.PodStatus) v1.PodStatus {
	theirs := f.Mirror.Status
	if theirs.StartTime == nil || ended(theirs.Phase) && Project(w.cfg.Node, f, ours, w.cfg.Now()).Phase != theirs.Phase {
		return ours
	}
	return theirs
}

// Get is the status last made for the pod.
func (w *Writer) Get(uid types.UID) (v1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.entries[uid]
	if !ok {
		return v1.PodStatus{}, false
	}
	return e.status, true
}

// Forget drops a pod that nobody knows any more.
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
	switch presses := e.remove || e.urgent || e.pause > 0 || pressing(e.told, e.status, e.going); {
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

// holdLocked lets what is to be sent wait for more of it, once.
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

// Run sends until ctx ends.
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

// next takes who is to be sent now. If there is nobody, it tells when one of the
// calm may be; zero if there are none.
func (w *Writer) next() (e *entry, later time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		e, w.queue[0], w.queue = w.queue[0], nil, w.queue[1:]
	}
	for e == nil && len(w.calm) > 0 {
		if !w.calm[0].calm || w.calm[0].gone { // sent meanwhile, because it pressed; or of no use
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

// send sends one pod's status, and then its deletion if that is due. What
// changes meanwhile is sent after it.
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
		err = panics.Try(w.cfg.Log, "statuses", func() error { return w.patch(ctx, ref, status, e) })
		w.measure(e, since, err)
	}
	removed := false
	if err == nil && remove {
		err = panics.Try(w.cfg.Log, "statuses", func() error { return w.delete(ctx, ref) })
		removed = err == nil
	}
	w.settle(e, ref, unsent, removed, err)
	w.tellPanic(e, err)
}

// tellPanic records an event of the pod about a panic at its status.
func (w *Writer) tellPanic(e *entry, err error) {
	var panicked *panics.Error
	if w.cfg.Events == nil || !errors.As(err, &panicked) {
		return
	}
	w.mu.Lock()
	p := e.pod
	w.mu.Unlock()
	w.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedSync, "error syncing pod: write its status: "+err.Error())
}

func (w *Writer) patch(ctx context.Context, ref pod.Ref, status v1.PodStatus, e *entry) error {
	b, err := patch(ref.UID, status)
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
		e.told, e.version = p.Status, p.ResourceVersion
	}
	return nil
}

// measure takes in how long a status took to arrive; one that did not goes on.
func (w *Writer) measure(e *entry, since time.Time, err error) {
	if err == nil {
		w.syncSeconds.Observe(w.cfg.Now().Sub(since).Seconds())
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.since = since
}

func (w *Writer) delete(ctx context.Context, ref pod.Ref) error {
	err := w.cfg.API.DeletePod(ctx, ref.Namespace, ref.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &ref.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod has its name by now
	}
	return err
}

func (w *Writer) settle(e *entry, ref pod.Ref, unsent, removed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.busy = false
	switch {
	case err == nil:
		e.pause = 0
		if e.again != nil {
			e.again.Stop()
			e.again = nil
		}
		if removed && e.ref == ref {
			e.remove, e.removed = false, true
		}
	case apierrors.IsNotFound(err):
		// The object is gone: there is nobody to tell. The source will say so. A
		// conflict is no such answer: it may have come of a crowd of writers.
		if e.ref == ref {
			e.remove, e.removed = false, true
		}
	case errors.Is(err, context.Canceled):
		return
	default:
		e.sent = e.sent && !unsent
		if e.again != nil {
			return // news that was tried in the middle of a pause: it is not longer for that
		}
		first := e.pause == 0
		e.pause = min(max(2*e.pause, firstPause), maxPause)
		if first {
			w.cfg.Log.Warn("cannot write pod status", "pod", ref.Namespace+"/"+ref.Name, "uid", ref.UID, "err", err)
		}
		// After Run has ended the entry is queued and nobody takes it: harmless.
		e.again = panics.Again(w.cfg.Log, "statuses", e.pause, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			e.again, e.ripe = nil, true
			w.enqueueLocked(e)
		})
		return
	}
	w.reconcileLocked(e) // what the watch showed during the PATCH can be compared now
	w.enqueueLocked(e)
}
