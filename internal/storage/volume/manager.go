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

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

const (
	minRetry = 500 * time.Millisecond
	maxRetry = 2*time.Minute + 2*time.Second
	// patience is how long one attempt may take without a sign of progress, and
	// after which a pod that still waits for volumes is said to.
	patience = 2*time.Minute + 3*time.Second
)

// ErrNoPlugin is the cause for a volume of a kind that nobody here serves.
var ErrNoPlugin = errors.New("no volume plugin matched")

// Config holds what a Manager is built from. Every field is required.
type Config struct {
	RootDir string
	Kinds   []Kind
	Guard   *mount.Guard
	Events  pod.Events
	// MaySwap tells whether what memory holds for pods may be written to a disk.
	MaySwap func() (bool, error)
	// RecursiveReadOnly tells whether the runtime can mount recursively
	// read-only for this pod's handler.
	RecursiveReadOnly func(p *v1.Pod) bool
	// StatsPeriod is the least time between two measurings of a volume; nothing
	// is measured if it is zero or less.
	StatsPeriod time.Duration
	// OnChange is called when the answer of State or Released changed. It must
	// not block.
	OnChange func(types.UID)
	Log      *slog.Logger
}

// Manager prepares and releases the volumes of pods.
type Manager struct {
	cfg     Config
	metrics *metrics
	now     func() time.Time
	lanes   lanes          // of volumes that are measured
	wg      sync.WaitGroup // attempts and releases under way

	mu   sync.Mutex
	ctx  context.Context // of Run; nil before and after
	pods map[types.UID]*volumes
	left map[types.UID][]string // the directories of volumes that an earlier agent left, until they are released
	came uint64                 // how often a driver has registered
}

// volumes are those of one pod. Guarded by Manager.mu.
type volumes struct {
	ref     pod.Ref
	spec    *v1.Pod // nil while nothing is wanted
	vols    map[string]*vol
	busy    int                // attempts under way
	cancel  context.CancelFunc // ends them
	ctx     context.Context    // theirs; nil before the first
	overdue *time.Timer        // speaks up when the pod waits too long
	said    State              // what OnChange was last called for

	phase    phase
	after    *v1.Pod // wanted again once all is released
	err      error   // why releasing fails
	delay    time.Duration
	released *time.Timer // next attempt to release
}

type phase int

const (
	wanted phase = iota
	releasing
	released
)

// vol is one volume. Guarded by Manager.mu.
type vol struct {
	spec  *v1.Volume
	kind  Kind // nil if nobody serves it
	busy  bool // an attempt is under way
	again bool // another one is due after it, or once Run begins
	ready bool
	have  Ready
	err   error // of the last attempt
	waits *Waiting
	delay time.Duration
	retry time.Time   // when the next attempt after a failure is due
	timer *time.Timer // for the next attempt

	attached bool      // it was counted that it is; only attempts, one at a time, touch it
	counted  string    // its plugin in metrics; empty while it is the kind's
	since    time.Time // when it was first asked for
	figures  figures
}

// plugin is what the volume is counted under.
func (v *vol) plugin() string { return cmp.Or(v.counted, v.kind.Plugin()) }

// State is how far the volumes of a pod are.
type State struct {
	Ready   bool
	Err     error     // the first failure, in the order of the specification
	RetryAt time.Time // when the failed volume is tried again
}

// New builds a Manager; nothing is prepared before Run.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, metrics: newMetrics(), now: time.Now, lanes: newLanes(), pods: map[types.UID]*volumes{}}
}

// Run works on what is wanted until ctx ends, and returns once nothing is under
// way any more.
func (m *Manager) Run(ctx context.Context) error {
	m.warnOfSwap()
	m.countFound() // before anything of it is released
	m.mu.Lock()
	m.ctx = ctx
	for uid, ps := range m.pods {
		if ps.phase == releasing {
			m.startReleaseLocked(uid, ps)
			continue
		}
		for _, v := range ps.vols {
			if v.again {
				v.again = false
				m.startLocked(uid, ps, v)
			}
		}
	}
	m.mu.Unlock()

	m.followClock(ctx)
	m.mu.Lock()
	m.ctx = nil // nothing begins any more
	for _, ps := range m.pods {
		ps.stopTimersLocked()
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

// warnOfSwap tells the node's owner, once, that secrets may reach a disk.
func (m *Manager) warnOfSwap() {
	may, err := m.cfg.MaySwap()
	if err != nil {
		m.cfg.Log.Warn("cannot tell whether swap is on", "err", err)
	}
	if may {
		m.cfg.Events.Node(v1.EventTypeWarning, pod.EventMemoryVolumesOnDisk, swapWarning)
	}
}

const swapWarning = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure."

// Want asks for every volume that p's containers mount. It may be called as
// often as one likes and never blocks; a pod that changed is taken as it is now.
func (m *Manager) Want(p *v1.Pod) {
	m.mu.Lock()
	ps := m.pods[p.UID]
	switch {
	case ps == nil || ps.phase == released:
		ps = &volumes{ref: pod.RefOf(p), vols: map[string]*vol{}}
		m.pods[p.UID] = ps
	case ps.phase == releasing:
		ps.after = p
		m.mu.Unlock()
		return
	case ps.spec == p:
		m.mu.Unlock()
		return
	}
	changed := ps.spec != nil && shownChanged(ps.spec, p)
	mounts := ps.spec != nil && mountsChanged(ps.spec, p)
	ps.spec = p
	var events []string
	for _, spec := range needed(p) {
		v := ps.vols[spec.Name]
		if v == nil {
			v = &vol{spec: spec, kind: m.kindOf(spec), since: time.Now()}
			ps.vols[spec.Name] = v
			if v.kind == nil {
				v.err = fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=%w", spec.Name, ErrNoPlugin)
				events = append(events, ps.waitingFor(v.err))
				continue
			}
			m.startLocked(p.UID, ps, v)
			continue
		}
		v.spec = spec
		if !changed && !mounts || v.kind == nil {
			continue
		}
		if in := v.kind.Inputs(spec); changed && in.Pod || mounts && in.Mounts {
			m.startLocked(p.UID, ps, v)
		}
	}
	if ps.overdue == nil && !ps.readyLocked() {
		ps.overdue = panics.After(m.cfg.Log, "volumes", patience, func() { m.overdue(p.UID, ps) })
	}
	notify := ps.changedLocked()
	m.mu.Unlock()
	for _, message := range events {
		m.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedMount, message)
	}
	if notify {
		m.cfg.OnChange(p.UID)
	}
}

func (m *Manager) kindOf(v *v1.Volume) Kind {
	for _, k := range m.cfg.Kinds {
		if k.Serves(v) {
			return k
		}
	}
	return nil
}

// ObjectChanged refreshes the volumes of these pods that show the object.
func (m *Manager) ObjectChanged(pods []types.UID, kind, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range pods {
		if ps := m.pods[uid]; ps != nil {
			m.refreshLocked(uid, ps, Object{kind, name})
		}
	}
}

// SharedChanged refreshes the volumes of all pods that show the object.
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
	for _, v := range ps.vols {
		if v.kind != nil && slices.Contains(v.kind.Inputs(v.spec).Objects, o) {
			v.delay = 0 // the cause of the failure may be gone
			m.startLocked(uid, ps, v)
		}
	}
}

// Again has those volumes of the pod looked at now that wait for something or
// have failed.
func (m *Manager) Again(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil || ps.phase != wanted {
		return
	}
	for _, v := range ps.vols {
		if v.kind != nil && (v.waits != nil || v.err != nil || v.busy && !v.ready) {
			v.delay = 0
			m.startLocked(uid, ps, v)
		}
	}
}

// DriverCame has what failed because the driver had not registered tried again now: volumes that are wanted, and those
// that are to be released.
func (m *Manager) DriverCame(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.came++ // for attempts under way
	for uid, ps := range m.pods {
		if ps.phase == releasing && ps.released != nil && lacks(ps.err, name) && ps.released.Stop() {
			ps.delay = 0
			m.startReleaseLocked(uid, ps)
		}
		for _, v := range ps.vols {
			if ps.phase == wanted && !v.busy && lacks(v.err, name) {
				v.delay = 0
				m.startLocked(uid, ps, v)
			}
		}
	}
}

// cameSinceLocked reports whether an attempt failed for the want of a driver, and one has registered since it began.
func (m *Manager) cameSinceLocked(before uint64, err error) bool {
	var none *NoDriver
	return errors.As(err, &none) && m.came > before
}

// State tells how far the pod's volumes are. A pod that was never wanted is not
// ready.
func (m *Manager) State(uid types.UID) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil {
		return State{}
	}
	return ps.stateLocked()
}

// Ready is the part of State that decides whether containers may start.
func (m *Manager) Ready(uid types.UID) (bool, error) {
	s := m.State(uid)
	return s.Ready, s.Err
}

// RetryAt is the part of State that tells people when to look again.
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

// changedLocked reports whether the state differs from what was last told.
func (ps *volumes) changedLocked() bool {
	s, old := ps.stateLocked(), ps.said
	ps.said = s
	return s.Ready != old.Ready || (s.Err == nil) != (old.Err == nil) || s.Err != nil && s.Err.Error() != old.Err.Error()
}

func (ps *volumes) stopTimersLocked() {
	for _, v := range ps.vols {
		if v.timer != nil {
			v.timer.Stop()
		}
	}
	for _, t := range []*time.Timer{ps.overdue, ps.released} {
		if t != nil {
			t.Stop()
		}
	}
}
