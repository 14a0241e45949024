package dra

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/reconcile"
)

// API reads ResourceClaims.
type API interface {
	Claim(ctx context.Context, namespace, name string) (*Object, error)
}

// Object is a ResourceClaim of the API server.
type Object struct {
	metav1.ObjectMeta
	ReservedFor []types.UID // pods that may use it
	Allocated   bool
	Drivers     []string // of the allocated devices, with duplicates
}

// Config holds the configuration of a Manager. All fields are required unless noted otherwise.
type Config struct {
	Path     string  // of the checkpoint
	API      API     // nil: standalone
	Health   *Health // nil: device health is not tracked
	Drivers  *Drivers
	Events   pod.Events
	OnChange func(types.UID) // called when the claims of a pod have changed; must not block
	Log      *slog.Logger
}

// Manager prepares and unprepares claims. It is safe for concurrent use. Only methods with a context may block.
type Manager struct {
	cfg     Config
	metrics metrics
	work    *reconcile.Reconciler[types.UID] // of pods

	writing sync.Mutex // held while the checkpoint is written; taken before mu

	mu      sync.Mutex
	pods    map[types.UID]*podState
	claims  map[types.UID]*claim // by the claim's UID
	unsaved bool                 // the checkpoint is out of date
	knows   func(types.UID) bool // reports whether a pod exists; nil: not known yet
	trigger chan struct{}        // capacity 1: there are claims, or knows was set
}

// claim is a ResourceClaim for which a driver was called, or is about to be called.
type claim struct {
	ClaimRef
	turn chan struct{} // capacity 1: held during calls to drivers for the claim

	// The rest is guarded by Manager.mu.
	users   map[types.UID]bool
	drivers map[string]*driverState
}

// driverState is a driver's part of a claim.
type driverState struct {
	asked    bool // the driver was called, so it may be prepared
	prepared bool
	devices  []Device
}

// Device is a prepared device of a claim.
type Device struct {
	Pool, Name string
	Share      string   // the share ID; empty: not shared
	Requests   []string // the requests it belongs to; none: all
	CDI        []string
}

// retries is the back-off after failures of a driver.
var retries = clock.Backoff(minRetry, maxRetry)

// phase is what the DRA manager does for a pod.
type phase string

const (
	preparing   phase = "preparing"
	unpreparing phase = "unpreparing"
)

// podState is the state of a pod that uses claims.
type podState struct {
	ref   pod.Ref
	spec  *v1.Pod // nil: only known from the checkpoint
	phase phase
	ready bool
	err   error     // of the last attempt
	retry time.Time // of the next attempt after a failure
}

// New returns a Manager without claims.
func New(cfg Config) *Manager {
	s := &Manager{
		cfg:     cfg,
		metrics: newMetrics(),
		pods:    map[types.UID]*podState{},
		claims:  map[types.UID]*claim{},
		trigger: make(chan struct{}, 1),
	}
	s.work = reconcile.New(reconcile.Config[types.UID]{
		Part:    "claims",
		Lock:    &s.mu,
		Begin:   s.beginLocked,
		Backoff: retries,
		Log:     cfg.Log,
	})
	return s
}

// Run processes pods until ctx ends. Prepared claims are kept for the next agent.
func (s *Manager) Run(ctx context.Context) error {
	s.work.Start(ctx)
	s.reconcile(ctx)
	s.work.Wait()
	return s.save()
}

// Want prepares the claims of a pod, and retries until it succeeds. It never blocks, and is idempotent.
func (s *Manager) Want(p *v1.Pod) {
	if !Uses(p) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[p.UID]
	switch {
	case u == nil:
		u = &podState{ref: pod.RefOf(p), spec: p, phase: preparing}
		s.pods[p.UID] = u
		s.work.RequestLocked(p.UID)
		return
	case u.phase != preparing:
		return
	}
	changed := !samePodClaims(u.spec, p)
	u.spec = p
	if changed {
		u.ready = false
		s.work.RequestLocked(p.UID)
	}
}

func samePodClaims(a, b *v1.Pod) bool {
	had, err := podClaims(a)
	has, none := podClaims(b)
	return (err == nil) == (none == nil) && slices.Equal(had, has)
}

// Ready reports whether all claims of the pod are prepared, or the error of the last attempt. A pod without claims is
// ready.
func (s *Manager) Ready(uid types.UID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[uid]
	if u == nil {
		return true, nil
	}
	return u.phase == preparing && u.ready, u.err
}

// RetryAt returns the time of the next attempt after a failure, or zero.
func (s *Manager) RetryAt(uid types.UID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.pods[uid]; u != nil {
		return u.retry
	}
	return time.Time{}
}

// Release unprepares the claims that only this pod uses, and retries until it succeeds. It must be called when nothing
// of the pod runs any more. It never blocks, and is idempotent.
func (s *Manager) Release(p pod.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[p.UID]
	switch {
	case u == nil && !s.usesLocked(p.UID):
		return
	case u == nil:
		u = &podState{ref: p}
		s.pods[p.UID] = u
	case u.phase == unpreparing:
		return
	}
	u.phase, u.err = unpreparing, nil
	s.work.ResetLocked(p.UID)
	s.work.CancelLocked(p.UID) // if it is being prepared
	s.work.RequestLocked(p.UID)
}

// Released reports whether the pod uses no claims any more, or the error of the last attempt.
func (s *Manager) Released(uid types.UID) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[uid]
	if u == nil {
		return !s.usesLocked(uid), nil
	}
	return false, u.err
}

// Prune releases the claims of pods that no longer exist. It is repeated periodically while there are claims.
func (s *Manager) Prune(knows func(types.UID) bool) {
	s.mu.Lock()
	s.knows = knows
	s.mu.Unlock()
	s.triggerReconcile()
	s.prune(knows)
}

// triggerReconcile wakes up reconcile.
func (s *Manager) triggerReconcile() {
	select {
	case s.trigger <- struct{}{}:
	default:
	}
}

// reconcile calls prune periodically while there are claims, until ctx ends.
func (s *Manager) reconcile(ctx context.Context) {
	var due <-chan time.Time // nil: there are no claims
	for {
		passed := false
		select {
		case <-ctx.Done():
			return
		case <-s.trigger:
		case <-due:
			passed, due = true, nil
		}
		s.mu.Lock()
		knows, some := s.knows, len(s.claims) > 0
		s.mu.Unlock()
		if knows == nil || !some {
			continue
		}
		if passed {
			s.prune(knows)
		}
		if due == nil {
			due = time.After(reconcilePeriod)
		}
	}
}

func (s *Manager) prune(knows func(types.UID) bool) {
	var gone []types.UID
	s.mu.Lock()
	for _, c := range s.claims {
		for uid := range c.users {
			gone = append(gone, uid)
		}
	}
	s.mu.Unlock()
	for _, uid := range gone {
		if !knows(uid) {
			s.Release(pod.Ref{UID: uid})
		}
	}
}

// DriverReady retries the pods whose last attempt failed, because a driver has become available.
func (s *Manager) DriverReady(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, u := range s.pods {
		if u.err != nil {
			s.work.RequestLocked(uid)
		}
	}
}

func (s *Manager) usesLocked(uid types.UID) bool {
	for _, c := range s.claims {
		if c.users[uid] {
			return true
		}
	}
	return false
}

// beginLocked returns an attempt to prepare or unprepare the claims of a pod.
func (s *Manager) beginLocked(uid types.UID) reconcile.Attempt {
	u := s.pods[uid]
	u.retry = time.Time{}
	p, what := u.spec, u.phase
	return reconcile.Attempt{
		Do: func(ctx context.Context) error {
			began, operation := time.Now(), operationPrepare
			err := panics.Try(s.cfg.Log, "claims", func() error {
				if what == unpreparing {
					operation = operationUnprepare
					return s.unprepare(ctx, uid)
				}
				return s.prepare(ctx, p)
			})
			s.metrics.observeOperation(operation, time.Since(began), err)
			return err
		},
		End: func(r reconcile.Result) reconcile.Next { return s.endLocked(uid, u, what, p, r) },
	}
}

// endLocked processes the result of an attempt.
func (s *Manager) endLocked(uid types.UID, u *podState, what phase, p *v1.Pod, r reconcile.Result) reconcile.Next {
	if u.phase != what {
		return reconcile.Next{} // the pod has been terminated in the meantime, and Release has requested an attempt
	}
	before := u.err
	u.err = r.Err
	var next reconcile.Next
	switch {
	case r.Err == nil && what == unpreparing:
		delete(s.pods, uid)
		next.Forget = true
	case r.Again: // the pod has changed since it began
	case r.Err == nil:
		u.ready = true
	default:
		u.retry = time.Now().Add(r.Pause)
		next.Retry = true
	}
	next.Then = func() {
		if r.Err != nil && !r.Cancelled {
			s.report(u.ref, p, what, before, r.Err)
		}
		s.cfg.OnChange(uid)
	}
	return next
}

// report logs a failure and records an event about it.
func (s *Manager) report(ref pod.Ref, p *v1.Pod, what phase, before, err error) {
	log := s.cfg.Log.With("pod", ref.Namespace+"/"+ref.Name, "podUID", ref.UID)
	if what == unpreparing {
		log.Warn("failed to unprepare ResourceClaims", "err", err)
		if p != nil && (before == nil || before.Error() != err.Error()) {
			s.cfg.Events.Pod(
				p,
				"",
				v1.EventTypeWarning,
				pod.EventFailedKillPod,
				"error killing pod: unprepare dynamic resources: "+shown(err),
			)
		}
		return
	}
	log.Warn("failed to prepare ResourceClaims", "err", err)
	s.cfg.Events.Pod(
		p,
		"",
		v1.EventTypeWarning,
		pod.EventFailedPrepareClaims,
		"Failed to prepare dynamic resources: "+shown(err),
	)
}

// HealthChanged triggers a sync of the pods with devices of a driver after their health has changed.
func (s *Manager) HealthChanged(driver string) {
	news := map[types.UID]bool{}
	s.mu.Lock()
	for _, c := range s.claims {
		if c.drivers[driver] != nil {
			maps.Copy(news, c.users)
		}
	}
	s.mu.Unlock()
	for uid := range news {
		s.cfg.OnChange(uid)
	}
}
