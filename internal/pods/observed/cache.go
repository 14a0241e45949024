package observed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// runtime is the part of the CRI that lists and reads sandboxes and containers. Every call
// has a timeout of its own.
type runtime interface {
	ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error)
	ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
	PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error)
	// ContainerEvents calls the function for each event until the stream ends.
	ContainerEvents(context.Context, func(*runtimeapi.ContainerEventResponse)) error
}

// Config holds what a Cache is built from. Fields are required unless their
// comment says otherwise.
type Config struct {
	Runtime  runtime
	OnChange func(types.UID) // called after a pod changed; must not block
	Audit    time.Duration   // between lists with an event stream; 0 is DefaultAudit
	Log      *slog.Logger
	Now      func() time.Time
}

const (
	// slots is how many pods are read in parallel.
	slots = 16
	// slotTimeout is how long a read may keep its slot.
	slotTimeout = 5 * time.Second
	// maxEvents is how many events of one pod are queued; with more, they are dropped and the
	// pod is read.
	maxEvents = 16
	// maxTries is how often a pod is read in a row for one reason. After that the next list
	// decides.
	maxTries = 8
	retryMin = 50 * time.Millisecond
	retryMax = 10 * time.Second
	// syncTimeout bounds the wait for every pod of the first list to be read.
	syncTimeout = 10 * time.Second
)

// Cache holds the observed state of each pod. It is safe for concurrent use.
type Cache struct {
	cfg       Config
	ctx       context.Context // ends with Run; the context of the workers
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	slots     chan struct{}
	relistNow chan struct{} // capacity 1; requests a list
	synced    chan struct{}
	metrics   metrics

	mu      sync.Mutex
	closed  bool
	pods    map[types.UID]*entry
	owners  map[string]types.UID   // of sandboxes and containers
	unread  map[types.UID]struct{} // of the first list; nil before it and once synced
	listed  time.Time              // when the last list arrived; zero: never
	stream  time.Time              // since when there is an event stream; zero: none
	streams int                    // that were reliable and ended
}

// entry is one pod. An entry exists while the runtime holds something of the pod, or a
// caller waits for it.
type entry struct {
	uid     types.UID
	have    pod.Runtime
	shown   bool      // a list shows the pod, but it has not been read yet
	changed time.Time // when have was set

	// Pending work. It belongs to the worker while busy is set.
	waiting *request // callers that wait for the next read
	events  []event
	listing *listing // differs from have
	dirty   bool     // the pod is to be read
	after   time.Time
	tries   int
	busy    bool
	odd     bool          // the last read was inconsistent, and that was logged
	wake    chan struct{} // capacity 1
}

// request is one read that callers wait for.
type request struct {
	done    chan struct{}
	all     bool // everything is to be read, not only what effects name
	effects []pod.Effect
	result  pod.Runtime
	err     error
}

// New makes a cache; it is empty until Run is called.
func New(cfg Config) *Cache {
	if cfg.Audit == 0 {
		cfg.Audit = DefaultAudit
	}
	c := &Cache{
		cfg:       cfg,
		slots:     make(chan struct{}, slots),
		relistNow: make(chan struct{}, 1),
		synced:    make(chan struct{}),
		metrics:   newMetrics(),
		pods:      map[types.UID]*entry{},
		owners:    map[string]types.UID{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Get returns what the runtime holds for a pod; that may be nothing. It is false while
// that is unknown: before [Cache.Synced], and while a listed pod could not be read yet.
// The caller should not act then. Of a listed pod that could not be read yet it returns the Ref alone.
func (c *Cache) Get(uid types.UID) (pod.Runtime, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.pods[uid]; ok {
		return e.have, !e.have.SeenAt.IsZero() && !e.shown
	}
	return pod.Runtime{Ref: pod.Ref{UID: uid}, SeenAt: c.listed}, c.isSynced()
}

// UIDs returns the pods of which the runtime holds something.
func (c *Cache) UIDs() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	uids := make([]types.UID, 0, len(c.pods))
	for uid, e := range c.pods {
		if e.shown || !e.have.Empty() {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Synced is closed once the runtime was listed and its pods were read. A pod that cannot
// be read delays it by a few seconds at most; see [Cache.Get].
func (c *Cache) Synced() <-chan struct{} { return c.synced }

func (c *Cache) isSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// Refresh reads a pod now and returns what it holds: everything that happened
// before the call is in it. Callers at the same time share a read.
func (c *Cache) Refresh(ctx context.Context, uid types.UID) (pod.Runtime, error) {
	c.mu.Lock()
	e := c.entryLocked(uid)
	if e.waiting == nil {
		e.waiting = &request{done: make(chan struct{})}
	}
	e.waiting.all = true
	r := e.waiting
	ok := c.workLocked(e)
	c.mu.Unlock()
	if !ok {
		return pod.Runtime{}, fmt.Errorf("read pod %s: %w", uid, errStopped)
	}
	select {
	case <-r.done:
		return r.result, r.err
	case <-ctx.Done():
		return pod.Runtime{}, fmt.Errorf("read pod %s: %w", uid, ctx.Err())
	}
}

var errStopped = errors.New("cache has stopped")

func (c *Cache) entryLocked(uid types.UID) *entry {
	e := c.pods[uid]
	if e == nil {
		e = &entry{uid: uid, have: pod.Runtime{Ref: pod.Ref{UID: uid}}, wake: make(chan struct{}, 1)}
		if c.isSynced() {
			// Neither the last list nor a later event showed the pod: the runtime held nothing of it
			// at that time.
			e.have.SeenAt = c.listed
		}
		c.pods[uid] = e
	}
	return e
}

// workLocked starts or wakes the worker of the entry.
func (c *Cache) workLocked(e *entry) bool {
	if c.closed {
		return false
	}
	if !e.busy {
		e.busy = true
		c.wg.Go(func() { c.serve(e) })
		return true
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return true
}

// setLocked stores the observed state of a pod and reports whether it changed.
func (c *Cache) setLocked(e *entry, next pod.Runtime) bool {
	for _, s := range e.have.Sandboxes {
		delete(c.owners, s.ID)
	}
	for _, ctr := range e.have.Containers {
		delete(c.owners, ctr.ID)
	}
	for _, s := range next.Sandboxes {
		c.owners[s.ID] = e.uid
	}
	for _, ctr := range next.Containers {
		c.owners[ctr.ID] = e.uid
	}
	// The first observation is a change, too, even an empty one: a caller may wait for it.
	news := e.shown || e.have.SeenAt.IsZero() || !equal(e.have, next)
	e.have, e.shown, e.changed = next, false, c.cfg.Now()
	return news
}

// equal compares what two reads found, not when.
func equal(a, b pod.Runtime) bool {
	if a.Empty() && b.Empty() {
		return true
	}
	a.SeenAt = b.SeenAt
	return reflect.DeepEqual(a, b)
}

// readLocked records that a pod of the first list was read.
func (c *Cache) readLocked(uid types.UID) {
	if c.unread == nil {
		return
	}
	if delete(c.unread, uid); len(c.unread) == 0 {
		c.syncLocked()
	}
}

func (c *Cache) syncLocked() {
	c.unread = nil
	if !c.isSynced() {
		close(c.synced)
	}
}

// Healthy is nil while the runtime is listed regularly. Its text goes into the
// node's Ready condition, after "PLEG is not healthy: ".
func (c *Cache) Healthy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listed.IsZero() {
		return errors.New("pleg has yet to be successful")
	}
	if ago := c.cfg.Now().Sub(c.listed); ago > Threshold {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v", ago, Threshold)
	}
	return nil
}
