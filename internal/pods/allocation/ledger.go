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

// Verdict is the answer to a pod's arrival: it may run if it was not rejected and
// waits for nothing.
type Verdict struct {
	Rejection *pod.Rejection
	// Waits: others have to end first. The pod is woken when they have.
	Waits bool
	// Late is for which device plugins it waits. Each wake-up of the pod has it judged again.
	Late pod.Late
	// Victims are to be preempted by the caller: the pod, or another that was judged with it, waits for their end.
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

// Judge says whether a pod may run beside others that use the node, and reserves what only one pod can have. To ask
// again changes nothing. It may save what it has reserved. admitted says that an earlier agent has admitted the pod.
type Judge func(p *v1.Pod, others []*v1.Pod, admitted bool) *pod.Rejection

// Arrival is a pod that a source wants to run.
type Arrival struct {
	Pod     *v1.Pod
	Running bool // the runtime holds something of it: it was admitted once
}

// Config holds what a Ledger is built from. Judge, Release, TakeOver and Vacate may wait for the disk, SecondLook for
// the API server; the other functions must not block. None may call back. All fields are required.
type Config struct {
	Dir   string // where the state files are
	Judge Judge
	// SecondLook reads anew what a rejection may be wrong about and returns a judge
	// who knows it; nil when the rejection stands. It may block.
	SecondLook func(ctx context.Context, r *pod.Rejection) Judge
	// MakeRoom names the pods that have to go so that p, which was refused, can run;
	// none when the refusal stands. An error is another reason for it.
	MakeRoom func(p *v1.Pod, others []*v1.Pod, r *pod.Rejection) ([]*v1.Pod, error)
	// Release gives back what Judge has reserved for a pod that is refused after all,
	// and TakeOver reserves for one that an earlier agent has admitted.
	Release  func(types.UID)
	TakeOver func(*v1.Pod)
	// Vacate gives back what Judge has reserved, under an earlier agent perhaps, for pods
	// that are neither wanted nor run any more. It is called before anything new is judged.
	Vacate func()
	// Arrivals are the pods that could be judged now, but for those to be skipped.
	Arrivals func(skip func(types.UID) bool) []Arrival
	// RunningWithoutSource reports whether a pod that no source has delivered takes up the node.
	RunningWithoutSource func(types.UID) bool
	Rules                Rules
	Events               pod.Events
	OnChange             func(types.UID) // the pod is to be synced
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
	// judging is held while pods are admitted and resizes decided, one after another. That may save the state of
	// resource managers, so that it takes as long as the disk. It is taken before mu.
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

// New reads the state that an earlier agent left. What cannot be used is put
// aside; pods go on with what they have.
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

// othersLocked are the pods of the account without one.
func (l *Ledger) othersLocked(uid types.UID) []*v1.Pod {
	others := make([]*v1.Pod, 0, len(l.account))
	for other, p := range l.account {
		if other != uid {
			others = append(others, p)
		}
	}
	return others
}

// Refused counts a pod that another part has refused for good.
func (l *Ledger) Refused(reason string) {
	l.metrics.rejections.WithLabelValues(countedAs(reason)).Inc()
}

// Vacate takes an ended pod out of the account.
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

// Forget drops all that is known of a pod that is gone.
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

// Prune removes pods that no source and no worker has: they were gone before this agent came.
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

// Account are the pods that take up the node, with what is allocated to them. Those of
// which no source has delivered yet are not among them.
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
