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

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

// API is where claims are.
type API interface {
	Claim(ctx context.Context, namespace, name string) (*Object, error)
}

// Object is what the API server has of a claim.
type Object struct {
	metav1.ObjectMeta
	ReservedFor []types.UID // of pods that may use it
	Allocated   bool        // devices were chosen for it
	Drivers     []string    // of these devices; a driver of several is there several times
}

// Config holds what a Store is built from. Fields are required unless their comment
// says otherwise.
type Config struct {
	Path     string  // of the file
	API      API     // nil: standalone
	Health   *Health // nil: nobody wants to know how well devices are
	Drivers  *Drivers
	Events   pod.Events
	OnChange func(types.UID) // there is news of a pod's claims; must not block
	Log      *slog.Logger
}

// Store prepares claims and takes them back. It is safe for concurrent use; only
// methods with a context may block.
type Store struct {
	cfg     Config
	metrics metrics
	wg      sync.WaitGroup

	writing sync.Mutex // held while the file is written; taken before mu

	mu      sync.Mutex
	life    context.Context // Run's; nil before and after it
	pods    map[types.UID]*user
	claims  map[types.UID]*claim // by the claim's UID
	unsaved bool                 // the file is older than what is known
	knows   func(types.UID) bool // which pods there are; nil: not known yet
	poke    chan struct{}        // capacity 1: there are claims, or knows is known
}

// claim is one that a driver was asked for, or is about to be.
type claim struct {
	ClaimRef
	turn chan struct{} // capacity 1: who has put something in may call drivers for it

	// The rest is guarded by Store.mu.
	users   map[types.UID]bool
	drivers map[string]*portion
}

// portion is what a driver has made of a claim.
type portion struct {
	asked    bool // it may be prepared
	prepared bool
	devices  []Device
}

// Device is a device of a claim, as a driver told it.
type Device struct {
	Pool, Name string
	Share      string   // which share of it; empty: it is not shared
	Requests   []string // of the claim that it is for; none: all
	CDI        []string
}

// phase is how far a pod is with its claims.
type phase string

const (
	wanted    phase = "wanted"
	releasing phase = "releasing"
)

// user is a pod that uses claims.
type user struct {
	ref   pod.Ref
	spec  *v1.Pod // nil: not known to this agent
	phase phase
	ready bool
	busy  bool // an attempt is under way
	again bool // the pod has changed since it began
	stop  context.CancelFunc
	err   error // of the last attempt
	delay time.Duration
	retry time.Time
	timer *time.Timer // of the next attempt
}

// New makes a Store that knows of no claims.
func New(cfg Config) *Store {
	return &Store{cfg: cfg, metrics: newMetrics(), pods: map[types.UID]*user{}, claims: map[types.UID]*claim{}, poke: make(chan struct{}, 1)}
}

// Run works until ctx ends. Claims stay as they are then: the next agent goes on.
func (s *Store) Run(ctx context.Context) error {
	s.mu.Lock()
	s.life = ctx
	for uid, u := range s.pods {
		s.startLocked(uid, u)
	}
	s.mu.Unlock()
	s.reconcile(ctx)
	s.mu.Lock()
	s.life = nil
	for _, u := range s.pods {
		u.stopTimer()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return s.save()
}

// Want has the claims of a pod prepared, as many attempts as that takes. It never
// blocks, and asking again changes nothing.
func (s *Store) Want(p *v1.Pod) {
	if !Uses(p) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[p.UID]
	switch {
	case u == nil:
		u = &user{ref: pod.RefOf(p), spec: p, phase: wanted}
		s.pods[p.UID] = u
		s.startLocked(p.UID, u)
		return
	case u.phase != wanted:
		return
	}
	changed := !sameNeeds(u.spec, p)
	u.spec = p
	if changed {
		u.ready = false
		s.startLocked(p.UID, u)
	}
}

func sameNeeds(a, b *v1.Pod) bool {
	had, err := needs(a)
	has, none := needs(b)
	return (err == nil) == (none == nil) && slices.Equal(had, has)
}

// Ready reports whether all claims of the pod are prepared, and if not, what the last
// attempt failed on. A pod without claims is ready.
func (s *Store) Ready(uid types.UID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[uid]
	if u == nil {
		return true, nil
	}
	return u.phase == wanted && u.ready, u.err
}

// RetryAt is when what failed is tried again; zero: nothing did.
func (s *Store) RetryAt(uid types.UID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.pods[uid]; u != nil {
		return u.retry
	}
	return time.Time{}
}

// Release takes back what only this pod used, as many attempts as that takes. Nothing
// of the pod must run any more. It never blocks, and asking again changes nothing.
func (s *Store) Release(p pod.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[p.UID]
	switch {
	case u == nil && !s.usesLocked(p.UID):
		return
	case u == nil:
		u = &user{ref: p}
		s.pods[p.UID] = u
	case u.phase == releasing:
		return
	}
	u.phase, u.err, u.delay = releasing, nil, 0
	if u.busy {
		u.stop() // and when it has ended, the release begins
		return
	}
	s.startLocked(p.UID, u)
}

// Released reports whether the pod has no claim any more, and if not, what the last
// attempt failed on.
func (s *Store) Released(uid types.UID) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.pods[uid]
	if u == nil {
		return !s.usesLocked(uid), nil
	}
	return false, u.err
}

// Prune releases pods that nobody knows: they were gone before this agent came. It is
// done again now and then while there are claims.
func (s *Store) Prune(knows func(types.UID) bool) {
	s.mu.Lock()
	s.knows = knows
	s.mu.Unlock()
	s.look()
	s.prune(knows)
}

// look has it seen whether there is anything to reconcile.
func (s *Store) look() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// reconcile releases pods that nobody knows, now and then while there are claims, until
// ctx ends. Without claims it sleeps.
func (s *Store) reconcile(ctx context.Context) {
	var due <-chan time.Time // nil: it sleeps
	for {
		passed := false
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
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
			due = time.After(reconcileEvery)
		}
	}
}

func (s *Store) prune(knows func(types.UID) bool) {
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

// DriverCame has everything tried again that has failed.
func (s *Store) DriverCame(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, u := range s.pods {
		if u.err != nil {
			s.startLocked(uid, u)
		}
	}
}

func (s *Store) usesLocked(uid types.UID) bool {
	for _, c := range s.claims {
		if c.users[uid] {
			return true
		}
	}
	return false
}

// startLocked begins an attempt at what the pod is to come to.
func (s *Store) startLocked(uid types.UID, u *user) {
	switch {
	case s.life == nil || u.phase == wanted && u.ready:
		return
	case u.busy:
		u.again = true
		return
	}
	u.stopTimer()
	var ctx context.Context
	ctx, u.stop = context.WithCancel(s.life)
	u.busy, u.again = true, false
	p, what := u.spec, u.phase
	s.wg.Go(func() {
		began := time.Now()
		var err error
		if what == releasing {
			err = panics.Try(s.cfg.Log, "claims", func() error { return s.release(ctx, uid) })
			s.metrics.did(operationUnprepare, time.Since(began), err)
		} else {
			err = panics.Try(s.cfg.Log, "claims", func() error { return s.prepare(ctx, p) })
			s.metrics.did(operationPrepare, time.Since(began), err)
		}
		s.finish(ctx, uid, u, what, p, err)
	})
}

func (u *user) stopTimer() {
	if u.timer != nil {
		u.timer.Stop()
	}
	u.retry = time.Time{}
}

// finish takes the outcome of an attempt.
func (s *Store) finish(ctx context.Context, uid types.UID, u *user, what phase, p *v1.Pod, err error) {
	s.mu.Lock()
	called := ctx.Err() != nil
	u.stop()
	u.busy = false
	before := u.err
	switch {
	case u.phase != what: // the pod has gone meanwhile
		s.startLocked(uid, u)
		s.mu.Unlock()
		return
	case err == nil && what == releasing:
		delete(s.pods, uid)
	case err == nil && !u.again:
		u.ready, u.err, u.delay = true, nil, 0
	case u.again:
		u.err = err
		s.startLocked(uid, u)
	default:
		u.err = err
		u.delay = min(max(2*u.delay, minRetry), maxRetry)
		u.retry = time.Now().Add(u.delay)
		if s.life != nil {
			u.timer = panics.Again(s.cfg.Log, "claims", u.delay, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.pods[uid] == u {
					s.startLocked(uid, u)
				}
			})
		}
	}
	s.mu.Unlock()
	if err != nil && !called {
		s.tell(u.ref, p, what, before, err)
	}
	s.cfg.OnChange(uid)
}

// tell says what keeps a pod from starting, or from ending.
func (s *Store) tell(ref pod.Ref, p *v1.Pod, what phase, before, err error) {
	log := s.cfg.Log.With("pod", ref.Namespace+"/"+ref.Name, "uid", ref.UID)
	if what == releasing {
		log.Warn("cannot take back claims", "err", err)
		if p != nil && (before == nil || before.Error() != err.Error()) {
			s.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedKillPod, "error killing pod: unprepare dynamic resources: "+shown(err))
		}
		return
	}
	log.Warn("cannot prepare claims", "err", err)
	s.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedPrepareClaims, "Failed to prepare dynamic resources: "+shown(err))
}

// DriverTold has the pods looked at that have devices of a driver, which has told how
// well those are.
func (s *Store) DriverTold(driver string) {
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
