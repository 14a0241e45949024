package differ

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/fakecri"
)

// record is what was seen of one side's pods.
type record struct {
	side   *side
	stop   context.CancelFunc
	mu     sync.Mutex
	tracks map[string]*track // by life
}

// track is what was seen of one life on one side.
type track struct {
	mu       sync.Mutex
	pod      *corev1.Pod // as last seen; nil before it is there
	uids     []string    // of all pods that the life has had
	seen     []sighting  // one for each change of the status
	looked   *corev1.Pod // from which looks was made
	looks    flat
	gone     bool          // deleted, and not created again
	goneAt   time.Duration // on the clock
	events   map[string]*corev1.Event
	reported []string // texts of the agent's events, each once, sorted
	calls    []request
	asked    []string // keys of kept calls, each once, sorted
	steps    []taken
	sick     map[string]sickness // by container/probe
	changed  time.Duration       // on the clock
	clock    *clock
	news     chan struct{} // closed and replaced whenever something changes
}

// sighting is a pod with the time at which a watch showed it.
type sighting struct {
	*corev1.Pod
	at  time.Time
	now time.Duration // on the clock
}

// taken is a step with the time at which it was taken.
type taken struct {
	at   time.Time
	text string
}

// request is a call to the runtime that changes something.
type request struct {
	fakecri.Call
	message proto.Message
}

func newRecord(s *side) *record {
	return &record{side: s, stop: func() {}, tracks: map[string]*track{}}
}

// track returns the track of a life. The first call for a life creates it.
func (r *record) track(life string) *track {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tracks[life]
	if t == nil {
		t = &track{
			events:  map[string]*corev1.Event{},
			sick:    map[string]sickness{},
			clock:   r.side.clock,
			changed: r.side.clock.now(),
			news:    make(chan struct{}),
		}
		r.tracks[life] = t
	}
	return t
}

// forget drops the track of a life.
func (r *record) forget(life string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tracks, life)
}

// ended reports whether the pod has ended without having been deleted, and whether its status had a reason.
func (t *track) ended() (ended, reason bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.seen {
		if s.DeletionTimestamp == nil && (s.Status.Phase == corev1.PodSucceeded || s.Status.Phase == corev1.PodFailed) {
			ended = true
			reason = reason || s.Status.Reason != ""
		}
	}
	return ended, reason
}

// changedWhileStopped are the containers whose image a step changed while they were being stopped.
func (t *track) changedWhileStopped() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.steps {
		if !strings.HasPrefix(s.text, patch+" ") || !strings.Contains(s.text, `"image":`) {
			continue
		}
		for _, c := range t.calls {
			if c.Method == "StopContainer" && c.Start.Before(s.at) && s.at.Before(c.End) &&
				strings.Contains(s.text, `"name":"`+c.Container+`"`) {
				names = append(names, c.Container)
			}
		}
	}
	return names
}

func (t *track) tookStep(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, taken{time.Now(), text})
}

// entered reports whether the pod was created.
func (t *track) entered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.steps, func(s taken) bool { return s.text == create })
}

func (t *track) changedLocked() {
	t.changed = t.clock.now()
	close(t.news)
	t.news = make(chan struct{})
}

// sickness makes a probe fail: always, or until the container is started again after the probe has failed. A container
// whose liveness probe always failed would be restarted for ever. If a probe failed a fixed number of times, the result
// would depend on how often the agent probes while a container starts.
type sickness struct {
	forGood, failed bool
}

// fails reports whether a probe fails this time.
func (t *track) fails(probe string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, sick := t.sick[probe]
	if sick {
		s.failed = true
		t.sick[probe] = s
	}
	return sick
}

// setSick makes a probe fail, or ends that. A readiness probe fails until that is ended.
func (t *track) setSick(probe string, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sick, probe)
	if is {
		t.sick[probe] = sickness{forGood: strings.HasSuffix(probe, "/readiness")}
	}
	t.changedLocked()
}

// healLocked ends the failures that end with a start of the container.
func (t *track) healLocked(container string) {
	maps.DeleteFunc(t.sick, func(probe string, s sickness) bool {
		return s.failed && !s.forGood && strings.HasPrefix(probe, container+"/")
	})
}

// quiet are the calls that are not recorded: they change nothing.
var quiet = map[string]bool{
	"Version": true, "Status": true, "RuntimeConfig": true, "UpdateRuntimeConfig": true, "ListPodSandbox": true,
	"PodSandboxStatus": true,
	"ListContainers":   true, "ContainerStatus": true, "ContainerStats": true, "ListContainerStats": true,
	"PodSandboxStats":     true,
	"ListPodSandboxStats": true, "ImageStatus": true, "ListImages": true, "ImageFsInfo": true,
	"ListMetricDescriptors": true, "ListPodSandboxMetrics": true,
}

// call records a call to the runtime that has ended.
func (r *record) call(c fakecri.Call, req, _ any) {
	if quiet[c.Method] || c.Method == "ExecSync" && isProbe(c.Command) {
		return
	}
	_, pod, _ := strings.Cut(c.Pod, "/")
	l := r.side.lives.find(pod, r.side.node)
	if l == nil {
		return
	}
	msg, ok := req.(proto.Message)
	if !ok {
		return
	}
	t := r.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Method == "StartContainer" && c.Done {
		t.healLocked(c.Container)
	}
	t.noteUIDLocked(msg)
	asked := request{c, proto.Clone(msg)}
	t.calls = append(t.calls, asked)
	// A repeated call, such as the pull of an image before each attempt that fails, is
	// recorded only once.
	if !asked.kept() || t.noteLocked(r.side.normal(asked.key(), nil)) {
		t.changedLocked()
	}
}

// noteUIDLocked adds the UID in a request for a sandbox to those of the pod: a static pod need not have a mirror pod.
func (t *track) noteUIDLocked(req proto.Message) {
	box, ok := req.(*cri.RunPodSandboxRequest)
	if uid := box.GetConfig().GetMetadata().GetUid(); ok && uid != "" && !slices.Contains(t.uids, uid) {
		t.uids = append(t.uids, uid)
	}
}

// shown reports whether the API server has had the pod.
func (t *track) shown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pod != nil
}

// watch begins to follow the pods and events of the side's namespace.
func (r *record) watch(ctx context.Context) error {
	ctx, r.stop = context.WithCancel(ctx)
	core := r.side.client.CoreV1()
	pods, events := core.Pods(r.side.ns), core.Events(r.side.ns)
	podList, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	eventList, err := events.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch events: %w", err)
	}
	go follow(ctx, pods.Watch, podList.ResourceVersion, func(kind watch.EventType, o runtime.Object) {
		if p, ok := o.(*corev1.Pod); ok {
			r.seePod(kind, p)
		}
	})
	go follow(ctx, events.Watch, eventList.ResourceVersion, func(kind watch.EventType, o runtime.Object) {
		if e, ok := o.(*corev1.Event); ok && kind != watch.Deleted {
			r.seeEvent(e)
		}
	})
	return nil
}

// follow calls see for every change until the context ends. A watch that ends is opened again at the last version.
func follow(
	ctx context.Context,
	open func(context.Context, metav1.ListOptions) (watch.Interface, error),
	version string,
	see func(watch.EventType, runtime.Object),
) {
	for ctx.Err() == nil {
		w, err := open(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			if apierrors.IsResourceExpired(err) {
				panic(err) // missed changes cannot be compared
			}
			if pause(ctx, 100*time.Millisecond) != nil {
				return
			}
			continue
		}
		for e := range w.ResultChan() {
			m, ok := e.Object.(metav1.Object)
			if !ok {
				break
			}
			version = m.GetResourceVersion()
			see(e.Type, e.Object)
		}
		w.Stop()
	}
}

// staticUID is the annotation of a mirror pod with the UID of its static pod.
const staticUID = "kubernetes.io/config.hash"

func (r *record) seePod(kind watch.EventType, p *corev1.Pod) {
	l := r.side.lives.find(p.Name, r.side.node)
	if l == nil {
		return
	}
	t := r.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.pod
	if t.gone = kind == watch.Deleted; t.gone {
		t.goneAt = t.clock.now()
	}
	t.pod = p
	if before == nil || before.UID != p.UID {
		t.uids = append(t.uids, string(p.UID))
		if hash := p.Annotations[staticUID]; hash != "" {
			t.uids = append(t.uids, hash)
		}
	}
	if before == nil || before.UID != p.UID || !equality.Semantic.DeepEqual(before.Status, p.Status) {
		t.seen = append(t.seen, sighting{p, time.Now(), t.clock.now()})
	}
	t.changedLocked()
}

func (r *record) seeEvent(e *corev1.Event) {
	l := r.side.lives.find(e.InvolvedObject.Name, r.side.node)
	if l == nil {
		return
	}
	t := r.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events[e.Name] = e
	if e.Source.Component != "kubelet" && e.ReportingController != "kubelet" {
		return
	}
	text := r.side.normal(fmt.Sprintf("%s %s: %s, about %s %s, from %s/%s on %s", e.Type, e.Reason, e.Message,
		e.InvolvedObject.Kind, e.InvolvedObject.FieldPath, e.Source.Component, e.ReportingController, e.Source.Host),
		t.uids)
	if i, known := slices.BinarySearch(t.reported, text); !known {
		t.reported = slices.Insert(t.reported, i, text)
	}
}
