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

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

// runtime is the image part of the container runtime.
type runtime interface {
	ImageStatus(context.Context, *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error)
	PullImage(context.Context, *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error)
}

// secrets reads pull secrets. The call may wait; it is made in the background.
type secrets interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Records remembers with which credentials images were pulled, so that a pod
// does not get at an image that it could not have pulled itself.
type Records interface {
	// MustPull reports whether a pod may use an image that is there only after
	// pulling it. held are the credentials that the pod has; it is only called if
	// they matter.
	MustPull(image, ref string, held func() ([]Credential, error)) bool
	// Pulling is called before a pull, and either Pulled or Failed after it. A
	// Credential without Auth is a pull that needed none.
	Pulling(image string) error
	Pulled(image, ref string, with Credential)
	Failed(image string)
}

// Config holds what a Manager is built from. Fields are required unless their
// comment says otherwise.
type Config struct {
	Runtime  runtime
	Secrets  secrets         // nil without an API server: pull secrets count as missing
	Sources  []Source        // of credentials besides pull secrets, asked in order
	OnChange func(types.UID) // called when a wish of the pod came further; must not block
	Events   pod.Events
	// Parallel is how many images are pulled at a time; 0 is any number, 1 one
	// after the other.
	Parallel int
	// Records remembers with what images were pulled; nil: what is on the node is
	// for all its pods.
	Records  Records
	Registry prometheus.Registerer // nil: nothing is counted
	// QPS and Burst bound how many pulls begin in a second; pulls beyond fail.
	// A QPS of 0 is no bound.
	QPS   float64
	Burst int
	Log   *slog.Logger
	Now   func() time.Time
}

// Request is the wish for an image on behalf of one container or one image
// volume: one of the two is named.
type Request struct {
	Pod       *v1.Pod
	Container string
	Volume    string
	Image     string // as the pod says
	Policy    v1.PullPolicy
	// RuntimeHandler is handed to the runtime where images depend on it.
	RuntimeHandler string
	// Attempt tells the starts of the container apart.
	Attempt int
	// PullSecrets are secrets that the caller has at hand, before those that
	// the pod names.
	PullSecrets []v1.Secret
}

// Result is how far the wish has come.
type Result struct {
	Ref string // the runtime's reference, for the container's configuration
	Err *Error // why there is no image; nil while that is not known
	// RetryAt is when asking again may give another answer; zero: not by time.
	RetryAt time.Time
	Pulling bool // work is under way; OnChange tells when it is done
}

// Error is the reason and message that the waiting container shows.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

func (r Request) key() key { return key{r.Pod.UID, r.Container, r.Volume} }

// fresh is how long an image that was there is taken to be there. Images can be
// removed; a container that is to start later than this has its image checked
// again.
const fresh = 30 * time.Second

// Manager fetches images. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	metrics metrics
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	pulls   *semaphore.Weighted // nil: no bound
	rate    *rate.Limiter       // nil: no bound
	reads   singleflight.Group  // of images that several wishes ask for

	mu       sync.Mutex
	closed   bool
	wishes   map[key]*wish
	backoffs map[backoffKey]backoff
}

// key is whose wish it is: a container's or an image volume's of a pod.
type key struct {
	uid       types.UID
	container string
	volume    string
}

type backoffKey struct {
	uid   types.UID
	image string
}

// wish is one container's or volume's wish. Requests are not changed after they
// were made.
type wish struct {
	req     Request
	cancel  context.CancelFunc // ends the work
	working bool
	done    chan struct{} // of the last work, closed with its end
	gone    chan struct{} // closed when nobody has this wish any more
	pulled  bool          // this start has pulled or accepted the image before
	ref     string
	at      time.Time // when ref was found
	err     *Error
	retry   time.Time
	backoff bool // err is to turn into waiting out a back-off
	said    bool // that the back-off is waited out
}

// New makes a manager. Work begins with the first wish.
func New(cfg Config) (*Manager, error) {
	counts, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, metrics: counts, wishes: map[key]*wish{}, backoffs: map[backoffKey]backoff{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if cfg.Parallel > 0 {
		m.pulls = semaphore.NewWeighted(int64(cfg.Parallel))
	}
	if cfg.QPS > 0 {
		m.rate = rate.NewLimiter(rate.Limit(cfg.QPS), max(cfg.Burst, 1))
	}
	return m, nil
}

// Run waits for ctx to end and then ends all work.
func (m *Manager) Run(ctx context.Context) error {
	<-ctx.Done()
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	return nil
}

// Ensure tells how far a wish has come, and has it worked on if it is new or its
// time has come. The image is there when ready is true.
func (m *Manager) Ensure(req Request) (res Result, ready bool) {
	now := m.cfg.Now()
	m.mu.Lock()
	k := req.key()
	w := m.wishes[k]
	if w == nil || w.req.Attempt != req.Attempt || w.req.Image != req.Image {
		if w != nil {
			w.drop()
		}
		w = &wish{req: req, gone: make(chan struct{})}
		m.wishes[k] = w
	}
	var say bool
	switch {
	case w.working:
		res.Pulling = true
	case w.ref != "" && now.Sub(w.at) < fresh:
		res.Ref, ready = w.ref, true
	case w.err != nil && (w.retry.IsZero() || now.Before(w.retry)):
		res.Err, res.RetryAt = w.err, w.retry
		if b := m.backoffs[backoffKey{req.Pod.UID, req.Image}]; w.backoff {
			if now.Before(b.show()) {
				res.RetryAt = b.show()
			} else {
				res.Err, say, w.said = b.waiting(req.Image), !w.said, true
			}
		}
	default:
		w.ref, w.err, w.said, w.backoff, w.retry = "", nil, false, false, time.Time{}
		res.Pulling = m.startLocked(w)
	}
	m.mu.Unlock()
	if say {
		m.sayBackoff(req)
	}
	return res, ready
}

// Forget drops what is known of a pod and ends the work for it.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, w := range m.wishes {
		if k.uid == uid {
			w.drop()
			delete(m.wishes, k)
		}
	}
	for k := range m.backoffs {
		if k.uid == uid {
			delete(m.backoffs, k)
		}
	}
}

// InUse are the references of images that containers may be made of at any
// moment, and of image volumes.
func (m *Manager) InUse() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var refs []string
	for _, w := range m.wishes {
		if w.ref != "" {
			refs = append(refs, w.ref)
		}
	}
	return refs
}

// drop ends the work for a wish that nobody has any more, and waiting for it.
func (w *wish) drop() {
	if w.cancel != nil {
		w.cancel()
	}
	close(w.gone)
}

func (m *Manager) startLocked(w *wish) bool {
	if m.closed {
		return false
	}
	ctx, cancel := context.WithCancel(m.ctx)
	w.working, w.cancel, w.done = true, cancel, make(chan struct{})
	done := w.pulled
	m.wg.Go(func() {
		defer cancel()
		err := panics.Try(m.cfg.Log, "images", func() error {
			m.work(ctx, w, done)
			return nil
		})
		if err != nil && m.isOpen(w) {
			m.fail(ctx, w, pod.EventFailed, &Error{pod.ReasonErrImagePull, err.Error()})
		}
	})
	return true
}

// isOpen reports whether the work for a wish has yet to be finished.
func (m *Manager) isOpen(w *wish) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.working
}

// finish records how the work ended, unless nobody wants to know any more.
func (m *Manager) finish(ctx context.Context, w *wish, record func(now time.Time)) {
	m.mu.Lock()
	w.working = false
	close(w.done)
	over := ctx.Err() != nil
	if !over {
		record(m.cfg.Now())
	}
	m.mu.Unlock()
	if !over {
		m.cfg.OnChange(w.req.Pod.UID)
	}
}
