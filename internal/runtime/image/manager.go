package image

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// runtime is the image service of the container runtime.
type runtime interface {
	ImageStatus(context.Context, *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error)
	PullImage(context.Context, *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error)
}

// secrets reads pull secrets. The call may block; it is made in the background.
type secrets interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Records keeps track of the credentials with which images were pulled, so that a pod cannot use an
// image that it could not have pulled.
type Records interface {
	// MustPull reports whether a pod has to pull an image that is present to prove its access. held
	// returns the pod's credentials; it is called only if they matter.
	MustPull(image, ref string, held func() ([]Credential, error)) bool
	// Pulling is called before a pull, and either Pulled or Failed after it. A Credential without
	// Auth is an anonymous pull.
	Pulling(image string) error
	Pulled(image, ref string, with Credential)
	Failed(image string)
}

// Config holds what a Manager is built from. Fields are required unless their comment says otherwise.
type Config struct {
	Runtime  runtime
	Secrets  secrets         // nil without an API server: pull secrets count as missing
	Sources  []Source        // of credentials besides pull secrets, in order
	OnChange func(types.UID) // called when the state of one of the pod's pulls changed; must not block
	Events   pod.Events
	// Parallel bounds the number of concurrent pulls; 0 is unlimited.
	Parallel int
	// Records tracks the credentials of pulls. If nil, all pods may use the images on the node.
	Records  Records
	Registry prometheus.Registerer // nil: metrics are not registered
	// QPS and Burst bound the rate of pulls. Pulls beyond fail. A QPS of 0 is unlimited.
	QPS   float64
	Burst int
	Log   *slog.Logger
	Now   func() time.Time
}

// Request is a request for an image for either a container or an image volume.
type Request struct {
	Pod       *v1.Pod
	Container string
	Volume    string
	Image     string // as in the pod's specification
	Policy    v1.PullPolicy
	// RuntimeHandler is sent to the runtime, for which images may depend on it.
	RuntimeHandler string
	// Attempt distinguishes the starts of the container.
	Attempt int
	// PullSecrets are used before those that the pod names.
	PullSecrets []v1.Secret
}

// Result is the state of a request.
type Result struct {
	Ref string // the runtime's reference, for the container's configuration
	Err *Error // why the image is not present; nil while unknown
	// RetryAt is when Ensure may return another result; zero if time alone changes nothing.
	RetryAt time.Time
	Pulling bool // the request is being worked on; OnChange is called when done
}

// Error is why an image is not available, as the container status shows it.
type Error struct{ pod.Waiting }

func newError(reason, message string) *Error {
	return &Error{pod.Waiting{
		Reason:  reason,
		Message: message,
	}}
}

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

func (r Request) key() key { return key{r.Pod.UID, r.Container, r.Volume} }

// fresh is how long a found image is assumed to stay present. For a start after that it is
// inspected again, since images can be removed.
const fresh = 30 * time.Second

// Manager pulls images. It is safe for concurrent use.
type Manager struct {
	cfg         Config
	metrics     metrics
	ctx         context.Context
	cancel      context.CancelFunc
	wg          sync.WaitGroup
	slots       *semaphore.Weighted // nil: unlimited
	rate        *rate.Limiter       // nil: unlimited
	inspections singleflight.Group  // one at a time per image

	mu       sync.Mutex
	closed   bool
	states   map[key]*pullState
	backoffs map[backoffKey]backoff
}

// key identifies a container or image volume of a pod.
type key struct {
	uid       types.UID
	container string
	volume    string
}

type backoffKey struct {
	uid   types.UID
	image string
}

// pullState is the state of the request of one container or volume. Requests are immutable.
type pullState struct {
	req       Request
	cancel    context.CancelFunc // cancels the work
	working   bool
	done      chan struct{} // closed when the current work ends
	gone      chan struct{} // closed when the request is dropped or superseded
	pulled    bool          // this start has already pulled the image, or used it as present
	ref       string
	at        time.Time // when ref was found
	err       *Error
	retry     time.Time
	backoff   bool // err is followed by a back-off
	announced bool // the back-off event was sent
	// away is the pause after the last failure if the runtime could not be reached. Only the work for the request uses
	// it.
	away time.Duration
	// tried says whether the Pulling event was sent during these failures. It is used like away.
	tried bool
}

// New makes a manager. Work begins with the first request.
func New(cfg Config) (*Manager, error) {
	counts, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, metrics: counts, states: map[key]*pullState{}, backoffs: map[backoffKey]backoff{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if cfg.Parallel > 0 {
		m.slots = semaphore.NewWeighted(int64(cfg.Parallel))
	}
	if cfg.QPS > 0 {
		m.rate = rate.NewLimiter(rate.Limit(cfg.QPS), max(cfg.Burst, 1))
	}
	return m, nil
}

// Run waits for ctx to end and then cancels all work.
func (m *Manager) Run(ctx context.Context) error {
	<-ctx.Done()
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	return nil
}

// Ensure returns the state of a request. If the request is new or due for a retry, it starts the
// work. The image is present if ready is true.
func (m *Manager) Ensure(req Request) (res Result, ready bool) {
	now := m.cfg.Now()
	m.mu.Lock()
	k := req.key()
	st := m.states[k]
	if st == nil || st.req.Attempt != req.Attempt || st.req.Image != req.Image {
		if st != nil {
			st.drop()
		}
		st = &pullState{req: req, gone: make(chan struct{})}
		m.states[k] = st
	}
	var say bool
	switch {
	case st.working:
		res.Pulling = true
	case st.ref != "" && now.Sub(st.at) < fresh:
		res.Ref, ready = st.ref, true
	case st.err != nil && (st.retry.IsZero() || now.Before(st.retry)):
		res.Err, res.RetryAt = st.err, st.retry
		if b := m.backoffs[backoffKey{req.Pod.UID, req.Image}]; st.backoff {
			if now.Before(b.show()) {
				res.RetryAt = b.show()
			} else {
				res.Err, say, st.announced = b.waiting(req.Image), !st.announced, true
			}
		}
	default:
		st.ref, st.err, st.announced, st.backoff, st.retry = "", nil, false, false, time.Time{}
		res.Pulling = m.startLocked(st)
	}
	m.mu.Unlock()
	if say {
		m.eventBackoff(req)
	}
	return res, ready
}

// Forget drops the state of a pod and cancels its work.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, st := range m.states {
		if k.uid == uid {
			st.drop()
			delete(m.states, k)
		}
	}
	for k := range m.backoffs {
		if k.uid == uid {
			delete(m.backoffs, k)
		}
	}
}

// InUse returns the references of images that containers may be created from at any moment, and of
// image volumes.
func (m *Manager) InUse() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var refs []string
	for _, st := range m.states {
		if st.ref != "" {
			refs = append(refs, st.ref)
		}
	}
	return refs
}

// drop cancels the work for a request and wakes its waiters.
func (st *pullState) drop() {
	if st.cancel != nil {
		st.cancel()
	}
	close(st.gone)
}

func (m *Manager) startLocked(st *pullState) bool {
	if m.closed {
		return false
	}
	ctx, cancel := context.WithCancel(m.ctx)
	st.working, st.cancel, st.done = true, cancel, make(chan struct{})
	done := st.pulled
	m.wg.Go(func() {
		defer cancel()
		err := panics.Try(m.cfg.Log, "images", func() error {
			m.work(ctx, st, done)
			return nil
		})
		if err != nil && m.isOpen(st) {
			m.fail(ctx, st, pod.EventFailed, newError(pod.ReasonErrImagePull, err.Error()))
		}
	})
	return true
}

// isOpen reports whether the work has not finished yet.
func (m *Manager) isOpen(st *pullState) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return st.working
}

// finish records the result of the work, unless the request was dropped.
func (m *Manager) finish(ctx context.Context, st *pullState, record func(now time.Time)) {
	m.mu.Lock()
	st.working = false
	close(st.done)
	over := ctx.Err() != nil
	if !over {
		record(m.cfg.Now())
	}
	m.mu.Unlock()
	if !over {
		m.cfg.OnChange(st.req.Pod.UID)
	}
}
