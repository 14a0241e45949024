package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Life has the times at which a watch showed the events of one pod. A time is zero if the event has not happened.
type Life struct {
	Added    time.Time
	Ready    time.Time // first
	Exited   time.Time // the first container was shown as ended or restarted
	Deleting time.Time
	Gone     time.Time
	Restarts int32
	Flips    int // times that Ready changed after it was first true
	pod      *corev1.Pod
}

// podWatch watches the pods of a namespace.
type podWatch struct {
	version string // last seen; used only by the reading goroutine

	mu     sync.Mutex
	lives  map[string]*Life
	news   chan struct{} // closed and replaced at each event
	broken error
	stop   context.CancelFunc
	done   chan struct{}
}

// watchPods starts a watch. It sees every pod that is created after the call.
func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (*podWatch, error) {
	ctx, stop := context.WithCancel(ctx)
	pw := &podWatch{lives: map[string]*Life{}, news: make(chan struct{}), stop: stop, done: make(chan struct{})}
	pods := client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	pw.version = list.ResourceVersion
	open := func() (watch.Interface, error) {
		hours := int64((12 * time.Hour).Seconds()) // longer than any scene
		return pods.Watch(ctx, metav1.ListOptions{ResourceVersion: pw.version, TimeoutSeconds: &hours})
	}
	w, err := open()
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	go func() {
		defer close(pw.done)
		err := pw.read(w)
		// On an overloaded machine a connection may be closed. The next watch repeats the missed events. They are late,
		// which the percentiles show.
		for err == nil && ctx.Err() == nil {
			if w, err = open(); err == nil {
				err = pw.read(w)
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		pw.mu.Lock()
		defer pw.mu.Unlock()
		pw.broken = fmt.Errorf("watch pods: %w", err)
		pw.tell()
	}()
	return pw, nil
}

func (pw *podWatch) close() {
	pw.stop()
	<-pw.done
}

// read reads events until the watch ends. It returns an error only if another watch would fail too.
func (pw *podWatch) read(w watch.Interface) error {
	defer w.Stop()
	for e := range w.ResultChan() {
		now := time.Now()
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			return apierrors.FromObject(e.Object)
		}
		pw.version = p.ResourceVersion
		pw.mu.Lock()
		pw.see(now, e.Type, p)
		pw.tell()
		pw.mu.Unlock()
	}
	return nil
}

// tell wakes all waiting goroutines. The caller holds pw.mu.
func (pw *podWatch) tell() {
	close(pw.news)
	pw.news = make(chan struct{})
}

func (pw *podWatch) see(now time.Time, kind watch.EventType, p *corev1.Pod) {
	l := pw.lives[p.Name]
	if l == nil || l.pod.UID != p.UID {
		l = &Life{Added: now, pod: p}
		pw.lives[p.Name] = l
	}
	first := func(t *time.Time, is bool) {
		if is && t.IsZero() {
			*t = now
		}
	}
	if !l.Ready.IsZero() && ready(l.pod) != ready(p) {
		l.Flips++
	}
	var restarts int32
	ended := false
	for _, c := range p.Status.ContainerStatuses {
		restarts += c.RestartCount
		ended = ended || c.State.Terminated != nil || c.RestartCount > 0
	}
	l.Restarts = max(l.Restarts, restarts)
	first(&l.Ready, ready(p))
	first(&l.Exited, ended)
	first(&l.Deleting, p.DeletionTimestamp != nil)
	first(&l.Gone, kind == watch.Deleted)
	l.pod = p
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// life returns the times of a pod, or the zero Life if it is not known.
func (pw *podWatch) life(name string) Life {
	pw.mu.Lock()
	defer pw.mu.Unlock()
	if l := pw.lives[name]; l != nil {
		return *l
	}
	return Life{}
}

// until waits until want returns true for all pods, and returns their lives in the order of names.
func (pw *podWatch) until(ctx context.Context, what string, names []string, want func(Life) bool) ([]Life, error) {
	for {
		pw.mu.Lock()
		var lives []Life
		var missing string
		n := 0
		for _, name := range names {
			var l Life
			if have := pw.lives[name]; have != nil {
				l = *have
			}
			if want(l) {
				n++
			} else {
				missing = name
			}
			lives = append(lives, l)
		}
		news, broken := pw.news, pw.broken
		pw.mu.Unlock()
		if n == len(names) {
			return lives, nil
		}
		if broken != nil {
			return lives, broken
		}
		select {
		case <-news:
		case <-ctx.Done():
			return lives, fmt.Errorf("wait until pods are %s: %w: %d of %d are; not %s: %s", what, context.Cause(ctx),
				n, len(names), missing, describe(pw.life(missing).pod))
		}
	}
}

func describe(p *corev1.Pod) string {
	if p == nil {
		return "never seen"
	}
	return fmt.Sprintf("phase %s, conditions %v, containers %v", p.Status.Phase, p.Status.Conditions,
		p.Status.ContainerStatuses)
}

func isReady(l Life) bool { return !l.Ready.IsZero() }
func isGone(l Life) bool  { return !l.Gone.IsZero() }
