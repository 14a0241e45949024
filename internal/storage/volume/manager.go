package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/clock"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/reconcile"
	"keelson/internal/storage/mount"
)

const (
	minRetry = 500 * time.Millisecond
	maxRetry = 2*time.Minute + 2*time.Second
	// attemptTimeout bounds one attempt without progress. It is also the time after which an event is
	// recorded for a pod that still waits for volumes.
	attemptTimeout = 2*time.Minute + 3*time.Second
)

// Backoff is the pause after failed operations on a volume. It has no jitter: the pauses are upstream's.
var Backoff = clock.Backoff(minRetry, maxRetry)

// ErrNoPlugin is the cause for a volume of an unsupported kind.
var ErrNoPlugin = errors.New("no volume plugin matched")

// Config holds what a Manager is built from. Every field is required.
type Config struct {
	RootDir string
	Kinds   []Kind
	Guard   *mount.Guard
	Events  pod.Events
	// MaySwap reports whether memory-backed volumes may be swapped to disk.
	MaySwap func() (bool, error)
	// RecursiveReadOnly reports whether the runtime handler of the pod supports recursive read-only
	// mounts.
	RecursiveReadOnly func(p *v1.Pod) bool
	// StatsPeriod is the minimum time between two measurements of a volume. Zero or less disables
	// measurements.
	StatsPeriod time.Duration
	// OnChange is called when the result of State or Released has changed. It must not block.
	OnChange func(types.UID)
	Log      *slog.Logger
}

// Manager prepares and releases the volumes of pods.
type Manager struct {
	cfg     Config
	metrics *metrics
	now     func() time.Time
	lanes   lanes          // concurrent measurements
	wg      sync.WaitGroup // measurements under way

	prepares *reconcile.Reconciler[volumeKey]
	releases *reconcile.Reconciler[types.UID] // of all volumes of a pod

	mu            sync.Mutex
	ctx           context.Context // of Run; nil before and after
	pods          map[types.UID]*volumes
	left          map[types.UID][]string // directories of volumes left by an earlier agent, until released
	registrations uint64                 // number of driver registrations
}

// volumes is the state of one pod's volumes. Guarded by Manager.mu.
type volumes struct {
	ref      pod.Ref
	spec     *v1.Pod // nil if no volumes are wanted
	vols     map[string]*vol
	ctx      context.Context    // of the attempts to prepare; nil before the first
	cancel   context.CancelFunc // ends ctx
	overdue  *time.Timer        // records an event if the pod waits too long
	reported State              // state at the last call of OnChange

	phase phase
	after *v1.Pod // wanted again when all are released
	err   error   // of the last release
}

// volumeKey identifies a volume of a pod.
type volumeKey struct {
	uid  types.UID
	name string
}

type phase int

const (
	wanted phase = iota
	releasing
	released
)

// vol is the state of one volume. Guarded by Manager.mu.
type vol struct {
	spec  *v1.Volume
	kind  Kind // nil if unsupported
	ready bool
	have  Ready
	err   error // of the last attempt
	waits *Waiting
	retry time.Time // of the next attempt after a failure

	attached bool      // its attachment was counted; only accessed by attempts, which are sequential
	counted  string    // plugin name in metrics; empty means the kind's
	since    time.Time // of the first request
	figures  figures
}

// plugin returns the plugin name in metrics.
func (v *vol) plugin() string { return cmp.Or(v.counted, v.kind.Plugin()) }

// State is the state of a pod's volumes.
type State struct {
	Ready   bool
	Err     error     // the first failure in the order of the specification
	RetryAt time.Time // of the failed volume
}

// New makes a Manager. It prepares nothing before Run.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, metrics: newMetrics(), now: time.Now, lanes: newLanes(), pods: map[types.UID]*volumes{}}
	m.prepares = reconcile.New(reconcile.Config[volumeKey]{
		Part:    part,
		Lock:    &m.mu,
		Begin:   m.beginPrepareLocked,
		Backoff: Backoff,
		Log:     cfg.Log,
	})
	m.releases = reconcile.New(reconcile.Config[types.UID]{
		Part:    part,
		Lock:    &m.mu,
		Begin:   m.beginReleaseLocked,
		Backoff: Backoff,
		Log:     cfg.Log,
	})
	return m
}

const part = "volumes" // label of panics

// Run prepares and releases volumes until ctx ends, and returns when no work is under way.
func (m *Manager) Run(ctx context.Context) error {
	m.warnOfSwap()
	m.countFound() // before any of it is released
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	m.prepares.Start(ctx)
	m.releases.Start(ctx)

	m.followClock(ctx)
	m.mu.Lock()
	m.ctx = nil // no work is started any more
	for _, ps := range m.pods {
		ps.stopOverdueLocked()
	}
	m.mu.Unlock()
	m.prepares.Wait()
	m.releases.Wait()
	m.wg.Wait()
	return nil
}

// warnOfSwap logs and records once that memory-backed volumes may be swapped to disk.
func (m *Manager) warnOfSwap() {
	may, err := m.cfg.MaySwap()
	if err != nil {
		m.cfg.Log.Warn("failed to determine whether swap is enabled", "err", err)
	}
	if may {
		m.cfg.Events.Node(v1.EventTypeWarning, pod.EventMemoryVolumesOnDisk, swapWarning)
	}
}

const swapWarning = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, " +
	"etc.) might be swapped to disk and should no longer be considered secure."

// Want requests all volumes that the pod's containers use. It never blocks and can be called
// repeatedly; a changed pod replaces the earlier one.
func (m *Manager) Want(p *v1.Pod) {
	events, notify := m.want(p)
	for _, message := range events {
		m.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedMount, message)
	}
	if notify {
		m.cfg.OnChange(p.UID)
	}
}

// want returns the messages of events, and whether the state has changed. If it panics, the pod counts as not seen.
func (m *Manager) want(p *v1.Pod) (events []string, notify bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[p.UID]
	switch {
	case ps == nil || ps.phase == released:
		ps = &volumes{ref: pod.RefOf(p), vols: map[string]*vol{}}
		m.pods[p.UID] = ps
	case ps.phase == releasing:
		ps.after = p
		return nil, false
	case ps.spec == p:
		return nil, false
	}
	before, complete := ps.spec, false
	ps.spec = p
	defer func() {
		if !complete { // it panics
			ps.spec = before
		}
	}()
	events = m.requestVolumesLocked(ps, before)
	if ps.overdue == nil && !ps.readyLocked() {
		ps.overdue = panics.After(m.cfg.Log, part, attemptTimeout, func() { m.overdue(p.UID, ps) })
	}
	notify = ps.changedLocked()
	complete = true
	return events, notify
}

// requestVolumesLocked requests the volumes that are new or have changed, and returns the messages of events.
func (m *Manager) requestVolumesLocked(ps *volumes, before *v1.Pod) (events []string) {
	p := ps.spec
	changed := before != nil && shownChanged(before, p)
	mounts := before != nil && mountsChanged(before, p)
	for _, spec := range needed(p) {
		key := volumeKey{p.UID, spec.Name}
		v := ps.vols[spec.Name]
		if v == nil {
			v = &vol{spec: spec, kind: m.kindOf(spec), since: time.Now()}
			ps.vols[spec.Name] = v
			if v.kind == nil {
				v.err = fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=%w", spec.Name, ErrNoPlugin)
				events = append(events, ps.waitingFor(v.err))
				continue
			}
			m.prepares.RequestLocked(key)
			continue
		}
		v.spec = spec
		if !changed && !mounts || v.kind == nil {
			continue
		}
		if in := v.kind.Inputs(spec); changed && in.Pod || mounts && in.Mounts {
			m.prepares.RequestLocked(key)
		}
	}
	return events
}

func (m *Manager) kindOf(v *v1.Volume) Kind {
	for _, k := range m.cfg.Kinds {
		if k.Serves(v) {
			return k
		}
	}
	return nil
}

// ObjectChanged refreshes the volumes of these pods that depend on the object.
func (m *Manager) ObjectChanged(pods []types.UID, kind, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range pods {
		if ps := m.pods[uid]; ps != nil {
			m.refreshLocked(uid, ps, Object{kind, name})
		}
	}
}

// SharedChanged refreshes the volumes of all pods that depend on the object.
func (m *Manager) SharedChanged(o Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, ps := range m.pods {
		m.refreshLocked(uid, ps, o)
	}
}

func (m *Manager) refreshLocked(uid types.UID, ps *volumes, o Object) {
	if ps.phase != wanted {
		return
	}
	for name, v := range ps.vols {
		if v.kind != nil && slices.Contains(v.kind.Inputs(v.spec).Objects, o) {
			m.retryLocked(volumeKey{uid, name})
		}
	}
}

// retryLocked retries a volume without back-off: the cause of the failure may be gone.
func (m *Manager) retryLocked(key volumeKey) {
	m.prepares.ResetLocked(key)
	m.prepares.RequestLocked(key)
}

// Again retries the volumes of the pod that wait for something or have failed.
func (m *Manager) Again(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil || ps.phase != wanted {
		return
	}
	for name, v := range ps.vols {
		key := volumeKey{uid, name}
		if v.kind != nil && (v.waits != nil || v.err != nil || !v.ready && m.prepares.RunningLocked(key)) {
			m.retryLocked(key)
		}
	}
}

// DriverRegistered retries what failed because the driver was not registered: volumes to be
// prepared or released.
func (m *Manager) DriverRegistered(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registrations++ // for attempts under way
	for uid, ps := range m.pods {
		if ps.phase == releasing && !m.releases.RunningLocked(uid) && isDriverMissing(ps.err, name) {
			m.releases.ResetLocked(uid)
			m.releases.RequestLocked(uid)
		}
		for volume, v := range ps.vols {
			key := volumeKey{uid, volume}
			if ps.phase == wanted && !m.prepares.RunningLocked(key) && isDriverMissing(v.err, name) {
				m.retryLocked(key)
			}
		}
	}
}

// registeredSinceLocked reports whether an attempt failed because a driver was missing, and a
// driver has registered since it began.
func (m *Manager) registeredSinceLocked(before uint64, err error) bool {
	var none *NoDriver
	return errors.As(err, &none) && m.registrations > before
}

// State returns the state of the pod's volumes. A pod that was never wanted is not ready.
func (m *Manager) State(uid types.UID) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil {
		return State{}
	}
	return ps.stateLocked()
}

// Ready returns the part of State that decides whether containers may start.
func (m *Manager) Ready(uid types.UID) (bool, error) {
	s := m.State(uid)
	return s.Ready, s.Err
}

// RetryAt returns the part of State that is shown to users.
func (m *Manager) RetryAt(uid types.UID) time.Time { return m.State(uid).RetryAt }

func (ps *volumes) stateLocked() State {
	s := State{Ready: ps.readyLocked()}
	if ps.spec == nil {
		return s
	}
	for _, spec := range needed(ps.spec) {
		if v := ps.vols[spec.Name]; v.err != nil {
			s.Err = fmt.Errorf("volume %q: %w", spec.Name, v.err)
			s.RetryAt = v.retry
			break
		}
	}
	return s
}

func (ps *volumes) readyLocked() bool {
	if ps.phase != wanted || ps.spec == nil {
		return false
	}
	for _, v := range ps.vols {
		if !v.ready {
			return false
		}
	}
	return true
}

// changedLocked reports whether the state has changed since the last call of OnChange.
func (ps *volumes) changedLocked() bool {
	s, old := ps.stateLocked(), ps.reported
	ps.reported = s
	return s.Ready != old.Ready || (s.Err == nil) != (old.Err == nil) ||
		s.Err != nil && s.Err.Error() != old.Err.Error()
}

func (ps *volumes) stopOverdueLocked() {
	if ps.overdue != nil {
		ps.overdue.Stop()
	}
}
