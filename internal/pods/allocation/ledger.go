package allocation

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/checkpoint"
	"keelson/internal/pods/pod"
)

// Rejection says why a pod may not run on this node.
type Rejection struct {
	Reason  string
	Message string
	// Late, if it waits for anything, is all that is against the pod: it is to be judged again later.
	Late pod.Late
}

// Verdict is the answer to a pod's arrival: it may run if it was not rejected and
// waits for nothing.
type Verdict struct {
	Rejection *Rejection
	// Waits: others have to end first. The pod is woken when they have.
	Waits bool
	// Late is for which device plugins it waits. Each wake-up of the pod has it judged again.
	Late pod.Late
}

// Judge says whether a pod may run beside others that take up the node, and reserves
// what only one pod can have. To be asked again changes nothing, and it does not
// block. admitted says that an earlier agent has admitted the pod.
type Judge func(p *v1.Pod, others []*v1.Pod, admitted bool) *Rejection

// Arrival is a pod that somebody wants to run.
type Arrival struct {
	Pod     *v1.Pod
	Running bool // the runtime holds something of it: it was admitted once
}

// Config holds what a Ledger is built from. Functions must neither block nor call
// back, but for SecondLook; fields are required unless they say otherwise.
type Config struct {
	Dir   string // where the state files are
	Judge Judge
	// SecondLook reads anew what a rejection may be wrong about and returns a judge
	// who knows it; nil when the rejection stands. It may block.
	SecondLook func(ctx context.Context, r *Rejection) Judge
	// MakeRoom names the pods that have to go so that p, which was refused, can run;
	// none when the refusal stands. An error is another reason for it.
	MakeRoom func(p *v1.Pod, others []*v1.Pod, r *Rejection) ([]*v1.Pod, error)
	// Release gives back what Judge has reserved for a pod that is refused after all,
	// and TakeOver reserves for one that an earlier agent has admitted.
	Release  func(types.UID)
	TakeOver func(*v1.Pod)
	// Vacate gives back what Judge has reserved, under an earlier agent perhaps, for pods
	// that are neither wanted nor run any more. It is called before anything new is judged.
	Vacate func()
	// Evict ends a pod for another one's sake.
	Evict func(uid types.UID, grace time.Duration, reason, message, disruption string)
	// Arrivals are the pods that could be judged now, but for those to be skipped.
	Arrivals func(skip func(types.UID) bool) []Arrival
	// Unheard reports whether a pod takes up the node of which no source has told.
	Unheard  func(types.UID) bool
	Rules    Rules
	Events   pod.Events
	OnChange func(types.UID) // the pod is to be synced
	Log      *slog.Logger
	Now      func() time.Time
}

// progress is a resize that was granted.
type progress struct {
	generation int64
	problem    string
}

// Ledger keeps what pods were granted. It is safe for concurrent use, and only
// Admit may block.
type Ledger struct {
	cfg     Config
	metrics metrics
	dirty   chan struct{} // capacity 1: something is to be written
	defers  chan struct{} // capacity 1: a resize was deferred

	writing sync.Mutex // held while the files are written; taken before mu

	mu sync.Mutex
	// account are the pods that take up the node, with what they were granted.
	account  map[types.UID]*v1.Pod
	counted  bool // what ran when this agent came is in the account
	refused  map[types.UID]*Rejection
	room     map[types.UID][]types.UID // who has to end before an admitted pod may start
	late     map[types.UID]pod.Late    // pods in the account that are yet to be judged, by what they wait for
	granted  map[types.UID]Resources
	force    map[types.UID]Resources
	wishes   map[types.UID]*pending
	progress map[types.UID]*progress
	requests map[types.UID]Resources // the wish that was last counted
}

// New reads the state that an earlier agent left. What cannot be used is put
// aside; pods go on with what they have.
func New(cfg Config) *Ledger {
	l := &Ledger{
		cfg: cfg, metrics: newMetrics(), dirty: make(chan struct{}, 1), defers: make(chan struct{}, 1),
		account: map[types.UID]*v1.Pod{}, refused: map[types.UID]*Rejection{}, room: map[types.UID][]types.UID{}, late: map[types.UID]pod.Late{},
		wishes: map[types.UID]*pending{}, progress: map[types.UID]*progress{}, requests: map[types.UID]Resources{},
	}
	read := func(name string) map[types.UID]Resources {
		pods, err := load(filepath.Join(cfg.Dir, name))
		if err != nil {
			cfg.Log.Error("cannot take up what pods were granted; they go on with what they have", "err", err)
			cfg.Events.Node(v1.EventTypeWarning, checkpoint.EventUnusable, err.Error())
		}
		return pods
	}
	l.granted, l.force = read(fileGranted), read(fileInForce)
	return l
}

// Admit judges a pod on its arrival, once; running says that an earlier agent
// has admitted it. Only the pod in question waits for it.
func (l *Ledger) Admit(ctx context.Context, p *v1.Pod, running bool) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countLocked()
	if running {
		l.takeLocked(p)
		return Verdict{}
	}
	_, known := l.account[p.UID]
	switch _, waits := l.late[p.UID]; {
	case waits:
		l.judgeLocked(p, l.cfg.Judge)
	case !known && l.refused[p.UID] == nil:
		l.receiveLocked(p)
	}
	r := l.refused[p.UID]
	if r == nil {
		return l.verdictLocked(p.UID)
	}
	l.mu.Unlock()
	again := l.cfg.SecondLook(ctx, r)
	l.mu.Lock()
	if again != nil {
		l.judgeLocked(p, again)
	}
	r = l.refused[p.UID]
	if r != nil && ctx.Err() == nil {
		l.metrics.rejections.WithLabelValues(countedAs(r.Reason)).Inc()
	}
	if r == nil {
		return l.verdictLocked(p.UID)
	}
	return Verdict{Rejection: r}
}

// verdictLocked is the answer for a pod that was not rejected.
func (l *Ledger) verdictLocked(uid types.UID) Verdict {
	return Verdict{Waits: len(l.room[uid]) > 0 || l.late[uid].Waits(), Late: l.late[uid]}
}

// countLocked takes what ran when this agent came into the account, before the
// first pod is judged or given more: by what its source tells, or else by what it
// was granted.
func (l *Ledger) countLocked() {
	if l.counted {
		return
	}
	l.counted = true
	for uid, r := range l.granted {
		if _, known := l.account[uid]; !known && l.cfg.Unheard(uid) {
			l.account[uid] = l.standIn(uid, r) // its source may not have spoken yet
		}
	}
	for _, a := range l.cfg.Arrivals(func(types.UID) bool { return false }) {
		if a.Running {
			l.takeLocked(a.Pod)
		}
	}
}

// receiveLocked judges p, and with it all who have arrived meanwhile, the oldest
// first. What runs is counted before anything new is judged.
func (l *Ledger) receiveLocked(p *v1.Pod) {
	line := l.cfg.Arrivals(func(uid types.UID) bool {
		a, known := l.account[uid]
		return uid == p.UID || known && !pod.IsStandIn(a) || l.refused[uid] != nil
	})
	line = append(line, Arrival{Pod: p})
	for _, a := range line {
		if a.Running {
			l.takeLocked(a.Pod)
		}
	}
	l.cfg.Vacate()
	slices.SortStableFunc(line, func(a, b Arrival) int { return a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time) })
	for _, a := range line {
		if !a.Running {
			l.judgeLocked(a.Pod, l.cfg.Judge)
		}
	}
}

// standIn takes the place of a running pod of which only its resources are known.
func (l *Ledger) standIn(uid types.UID, r Resources) *v1.Pod {
	p := &v1.Pod{}
	p.UID = uid
	p.Spec.Resources = r.Pod
	for name, rr := range r.Containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Resources: rr})
	}
	return p
}

// takeLocked counts a pod that was admitted by an earlier agent. What it was
// granted is in the state; else its stored status tells what it has.
func (l *Ledger) takeLocked(p *v1.Pod) {
	r, known := l.granted[p.UID]
	if !known {
		r = stored(p)
		l.grantLocked(p.UID, r)
	}
	as := r.On(p)
	l.account[p.UID] = as
	l.cfg.TakeOver(as)
}

// judgeLocked takes a pod into the account, or notes why not. What an agent that
// died meanwhile had granted it holds. A pod that waits for device plugins is in the
// account, and is granted nothing yet.
func (l *Ledger) judgeLocked(p *v1.Pod, judge Judge) {
	delete(l.refused, p.UID)
	if l.late[p.UID].Waits() {
		delete(l.late, p.UID)
		delete(l.account, p.UID)
	}
	r, known := l.granted[p.UID]
	if !known {
		r = Of(p)
	}
	as := r.On(p)
	others := l.othersLocked(p.UID)
	no := judge(as, others, known || ran(p))
	if no != nil && no.Late.Waits() {
		l.account[p.UID], l.late[p.UID] = as, no.Late
		return
	}
	if no != nil {
		var victims []*v1.Pod
		if victims, no = l.makeRoomLocked(as, others, no); no != nil {
			l.cfg.Release(p.UID)
			l.refused[p.UID] = no
			return
		}
		for _, v := range victims {
			l.room[p.UID] = append(l.room[p.UID], v.UID)
		}
	}
	l.account[p.UID] = as
	if !known {
		l.grantLocked(p.UID, r)
	}
}

// ran reports whether the pod's status at the API server shows that a container was created.
func ran(p *v1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(c v1.ContainerStatus) bool {
		return c.ContainerID != ""
	})
}

// makeRoomLocked has others end for p, if there are any who may and it helps.
func (l *Ledger) makeRoomLocked(p *v1.Pod, others []*v1.Pod, no *Rejection) ([]*v1.Pod, *Rejection) {
	victims, err := l.cfg.MakeRoom(p, others, no)
	if err != nil {
		return nil, &Rejection{Reason: ReasonUnexpected, Message: "Unexpected error while attempting to recover from admission failure: " + err.Error()}
	}
	if len(victims) == 0 {
		return nil, no
	}
	for _, v := range victims {
		l.metrics.preempted.WithLabelValues(strings.TrimPrefix(no.Reason, "OutOf")).Inc()
		l.cfg.Events.Pod(v, "", v1.EventTypeWarning, EventPreempting, saysPreempting)
		l.cfg.Evict(v.UID, pod.Grace(v), ReasonPreempting, saysPreempting, disruptionPreempts)
	}
	return victims, nil
}

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
	_, had := l.account[uid]
	delete(l.account, uid)
	delete(l.wishes, uid)
	delete(l.progress, uid)
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
	if had {
		woken = append(woken, l.retryLocked(triggerRemoved)...)
	}
	l.mu.Unlock()
	l.wake(woken)
}

// Forget drops all that is known of a pod that is gone.
func (l *Ledger) Forget(uid types.UID) {
	l.Vacate(uid)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, uid)
	delete(l.requests, uid)
	_, a := l.granted[uid]
	_, b := l.force[uid]
	delete(l.granted, uid)
	delete(l.force, uid)
	if a || b {
		l.writeLocked()
	}
}

// Prune forgets pods that nobody knows: they were gone before this agent came.
func (l *Ledger) Prune(knows func(types.UID) bool) {
	l.mu.Lock()
	var gone []types.UID
	for _, state := range []map[types.UID]Resources{l.granted, l.force} {
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

// Account are the pods that take up the node, with what they were granted. Those of
// which no source has told yet are not among them.
func (l *Ledger) Account() []*v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(l.othersLocked(""), pod.IsStandIn)
}

func (l *Ledger) grantLocked(uid types.UID, r Resources) {
	l.granted[uid] = r
	l.writeLocked()
}

func (l *Ledger) wake(uids []types.UID) {
	for _, uid := range uids {
		l.cfg.OnChange(uid)
	}
}
