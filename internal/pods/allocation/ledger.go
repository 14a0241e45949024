package allocation

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
	"keelson/internal/pods/pod"
)

// Verdict is the result of a pod's admission: the pod may run if it was not rejected and waits for nothing.
type Verdict struct {
	Rejection *pod.Rejection
	// Waits: other pods have to end first, or device plugins have to register. The pod is woken when pods have ended.
	Waits bool
	// Late names the device plugins that the pod waits for. It is judged again each time it is woken.
	Late pod.Late
	// Victims are pods that the caller has to preempt: the pod, or another that was judged with it, waits for their end.
	Victims []Victim
}

// Victim is a pod that is preempted so that another one can run.
type Victim struct {
	UID        types.UID
	Grace      time.Duration
	Reason     string
	Message    string
	Disruption string // message of the condition DisruptionTarget
}

// Judge decides whether a pod may run beside others that use the node, and reserves exclusive resources for it. It is
// idempotent. It may save what it has reserved. admitted: the pod was admitted before.
type Judge func(p *v1.Pod, others []*v1.Pod, admitted bool) *pod.Rejection

// Arrival is a pod that a source has delivered.
type Arrival struct {
	Pod     *v1.Pod
	Running bool // the runtime holds something of it, so it was admitted before
}

// Config holds what a Ledger is built from. Judge, Release, TakeOver and Vacate may wait for the disk, SecondLook for
// the API server; the other functions must not block. None may call back. All fields are required.
type Config struct {
	Dir   string // where the state files are
	Judge Judge
	// SecondLook reads again what a rejection is based on and may be outdated, and returns a Judge that uses it; nil if
	// the rejection stands. It may block.
	SecondLook func(ctx context.Context, r *pod.Rejection) Judge
	// MakeRoom returns the pods that have to be preempted so that p, which was refused, can run; none if the refusal
	// stands. An error replaces the reason of the refusal.
	MakeRoom func(p *v1.Pod, others []*v1.Pod, r *pod.Rejection) ([]*v1.Pod, error)
	// Release releases what Judge has reserved for a pod that is refused after all. TakeOver reserves resources for a pod
	// that an earlier agent has admitted.
	Release  func(types.UID)
	TakeOver func(*v1.Pod)
	// Vacate releases what Judge has reserved, perhaps in an earlier agent, for pods that no source has and that do not
	// run any more. It is called before new pods are judged.
	Vacate func()
	// Arrivals returns the pods that can be judged now, except those to be skipped.
	Arrivals func(skip func(types.UID) bool) []Arrival
	// RunningWithoutSource reports whether a pod that no source has delivered uses the node.
	RunningWithoutSource func(types.UID) bool
	Rules                Rules
	Events               pod.Events
	OnChange             func(types.UID) // the pod must be synced
	Log                  *slog.Logger
	Now                  func() time.Time
}

// Ledger keeps what is allocated to pods. It is safe for concurrent use. Admit, Run, Starting and SetPodActuated may
// block.
type Ledger struct {
	cfg     Config
	metrics metrics
	dirty   chan struct{} // capacity 1: something is to be written

	writing sync.Mutex // held while the files are written; taken before mu
	// judging is held while pods are admitted and resizes decided, one after another. Resource managers may save their
	// state then, so it may be held during disk writes. It is taken before mu.
	judging sync.Mutex
	counted bool // running pods were added to the account; guarded by judging

	mu sync.Mutex
	// account are the pods that use the node, with what is allocated to them. Pods are added while judging is held.
	account map[types.UID]*v1.Pod
	vacated map[types.UID]bool // pods that were vacated since judging was locked
	// ended are the pods that were vacated, until they are removed. The runtime may still hold their containers, and
	// their source may not show yet that they have ended: neither adds them to the account again.
	ended     map[types.UID]bool
	refused   map[types.UID]*pod.Rejection
	room      map[types.UID][]types.UID // pods that have to end before an admitted pod may start
	late      map[types.UID]pod.Late    // pods in the account that are not admitted yet, with what they wait for
	allocated map[types.UID]Resources
	actuated  map[types.UID]Resources
	resizes   resizes
	events    []event // to be sent after mu was unlocked
}

// event is an event of a pod.
type event struct {
	pod     *v1.Pod
	kind    string
	reason  string
	message string
}

// recordLocked records an event, if there is one. unlock sends it.
func (l *Ledger) recordLocked(e *event) {
	if e != nil {
		l.events = append(l.events, *e)
	}
}

// unlock unlocks mu and sends the events that were recorded meanwhile: to send one may take time.
func (l *Ledger) unlock() {
	events := l.events
	l.events = nil
	l.mu.Unlock()
	for _, e := range events {
		l.cfg.Events.Pod(e.pod, "", e.kind, e.reason, e.message)
	}
}

// New reads the state that an earlier agent left. An unusable file is moved aside; pods keep the resources that they
// have.
func New(cfg Config) *Ledger {
	l := &Ledger{
		cfg:     cfg,
		metrics: newMetrics(),
		dirty:   make(chan struct{}, 1),
		account: map[types.UID]*v1.Pod{},
		vacated: map[types.UID]bool{},
		ended:   map[types.UID]bool{},
		refused: map[types.UID]*pod.Rejection{},
		room:    map[types.UID][]types.UID{},
		late:    map[types.UID]pod.Late{},
	}
	l.resizes = newResizes(&l.metrics)
	read := func(name string) map[types.UID]Resources {
		pods, err := load(filepath.Join(cfg.Dir, name))
		if err != nil {
			cfg.Log.Error("failed to read the allocation of pods; they keep what they have", "err", err)
			cfg.Events.Node(v1.EventTypeWarning, checkpoint.EventUnusable, err.Error())
		}
		return pods
	}
	l.allocated, l.actuated = read(fileAllocated), read(fileActuated)
	return l
}

// othersLocked returns the pods of the account except one.
func (l *Ledger) othersLocked(uid types.UID) []*v1.Pod {
	others := make([]*v1.Pod, 0, len(l.account))
	for other, p := range l.account {
		if other != uid {
			others = append(others, p)
		}
	}
	return others
}

// Refused counts a pod that another part has rejected.
func (l *Ledger) Refused(reason string) {
	l.metrics.rejections.WithLabelValues(countedAs(reason)).Inc()
}

// Vacate removes an ended pod from the account.
func (l *Ledger) Vacate(uid types.UID) {
	l.mu.Lock()
	l.vacated[uid], l.ended[uid] = true, true
	if _, had := l.account[uid]; had {
		l.resizes.removed()
	}
	delete(l.account, uid)
	l.resizes.vacate(uid)
	delete(l.room, uid)
	delete(l.late, uid)
	var woken []types.UID
	for waiting, list := range l.room {
		if list = slices.DeleteFunc(list, func(u types.UID) bool { return u == uid }); len(list) == 0 {
			delete(l.room, waiting)
			woken = append(woken, waiting)
		} else {
			l.room[waiting] = list
		}
	}
	l.unlock()
	l.wake(woken)
}

// Forget drops all records of a pod that is gone.
func (l *Ledger) Forget(uid types.UID) {
	l.Vacate(uid)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ended, uid)
	delete(l.refused, uid)
	delete(l.resizes.counted, uid)
	_, a := l.allocated[uid]
	_, b := l.actuated[uid]
	delete(l.allocated, uid)
	delete(l.actuated, uid)
	if a || b {
		l.writeLocked()
	}
}

// Prune drops the records of pods for which knows is false: they were gone before this agent started.
func (l *Ledger) Prune(knows func(types.UID) bool) {
	l.mu.Lock()
	var gone []types.UID
	for _, state := range []map[types.UID]Resources{l.allocated, l.actuated} {
		for uid := range state {
			if !knows(uid) {
				gone = append(gone, uid)
			}
		}
	}
	l.mu.Unlock()
	for _, uid := range gone {
		l.Forget(uid)
	}
}

// Account returns the pods that use the node, with what is allocated to them. Running pods that no source has delivered
// yet are not among them.
func (l *Ledger) Account() []*v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(l.othersLocked(""), pod.IsStandIn)
}

func (l *Ledger) allocateLocked(uid types.UID, r Resources) {
	l.allocated[uid] = r
	l.writeLocked()
}

func (l *Ledger) wake(uids []types.UID) {
	for _, uid := range uids {
		l.cfg.OnChange(uid)
	}
}
