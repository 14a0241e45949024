package desired

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// fakeAPI stores pods by name as a server does. It delivers changes to the source, if
// there is one.
type fakeAPI struct {
	mu          sync.Mutex
	pods        map[string]*v1.Pod
	next        int
	fail        error
	absent      bool // the node is not registered
	noUID       bool // the node that is known is not the API server's
	terminating bool // the node is being deleted
	made        chan *v1.Pod
	calls       []string
	source      *script
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{pods: map[string]*v1.Pod{}, made: make(chan *v1.Pod, 100)}
}

func (a *fakeAPI) node() (*v1.Node, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "node-uid"}}
	if a.noUID {
		n.UID = ""
	}
	if a.terminating {
		now := metav1.Now()
		n.DeletionTimestamp = &now
	}
	return n, !a.absent
}

func (a *fakeAPI) CreatePod(_ context.Context, p *v1.Pod) (*v1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, "create "+p.Name)
	if a.fail != nil {
		return nil, a.fail
	}
	if a.pods[pod.FullName(p)] != nil {
		return nil, apierrors.NewAlreadyExists(v1.Resource("pods"), p.Name)
	}
	a.next++
	p = p.DeepCopy()
	p.UID = types.UID("m" + string(rune('0'+a.next)))
	a.pods[pod.FullName(p)] = p
	a.made <- p
	if a.source != nil {
		go a.source.deliver(func(to Sink) { to.Set(p) })
	}
	return p, nil
}

func (a *fakeAPI) DeletePod(_ context.Context, namespace, name string, o metav1.DeleteOptions) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, "delete "+name)
	if a.fail != nil {
		return a.fail
	}
	p := a.pods[name+"_"+namespace]
	switch {
	case p == nil:
		return apierrors.NewNotFound(v1.Resource("pods"), name)
	case o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0:
		return errors.New("a mirror pod is deleted with grace 0")
	case o.Preconditions == nil || *o.Preconditions.UID != p.UID:
		return apierrors.NewConflict(v1.Resource("pods"), name, errors.New("the UID differs"))
	}
	delete(a.pods, pod.FullName(p))
	if a.source != nil {
		go a.source.deliver(func(to Sink) { to.Remove(p.UID) })
	}
	return nil
}

func (a *fakeAPI) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *fakeAPI) get(fullName string) *v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[fullName]
}

func (a *fakeAPI) took() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := strings.Join(a.calls, ", ")
	a.calls = nil
	return out
}

func TestPlanMirrors(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-20")
	now := time.Unix(1000, 0)
	static := func(uid types.UID) map[string]*v1.Pod { return map[string]*v1.Pod{"a_default": staticPod("a", uid)} }
	mirrors := func(ps ...*v1.Pod) map[string][]*v1.Pod { return map[string][]*v1.Pod{"a_default": ps} }
	deleting := mirrorPod("a", "m1", "1")
	deleting.DeletionTimestamp = &metav1.Time{Time: now}
	for _, tc := range []struct {
		name string
		in   mirrorInput
		busy bool
		want string
		wait time.Duration
	}{
		{name: "a static pod is shown", in: mirrorInput{Static: static("1"), NodeKnown: true}, want: "create a"},
		{name: "once the node is known", in: mirrorInput{Static: static("1")}, want: ""},
		{
			name: "one is enough",
			in:   mirrorInput{Static: static("1"), Mirrors: mirrors(mirrorPod("a", "m1", "1")), NodeKnown: true},
			want: "",
		},
		{
			name: "one of another version is replaced",
			in:   mirrorInput{Static: static("2"), Mirrors: mirrors(mirrorPod("a", "m1", "1")), NodeKnown: true},
			want: "delete m1, create a",
		},
		{
			name: "but not while the older pod ends",
			in:   mirrorInput{Static: static("2"), Mirrors: mirrors(mirrorPod("a", "m1", "1")), NodeKnown: true},
			busy: true,
			want: "",
		},
		{
			name: "one that is being deleted is replaced",
			in:   mirrorInput{Static: static("1"), Mirrors: mirrors(deleting), NodeKnown: true},
			want: "delete m1, create a",
		},
		{
			name: "one without a static pod is an orphan",
			in:   mirrorInput{Mirrors: mirrors(mirrorPod("a", "m1", "1"))},
			want: "delete m1",
		},
		{
			name: "but stays while its pod ends",
			in:   mirrorInput{Mirrors: mirrors(mirrorPod("a", "m1", "1")), NodeKnown: true},
			busy: true,
			want: "",
		},
		{name: "what was just created is waited for", in: mirrorInput{
			Static:    static("1"),
			NodeKnown: true,
			Now:       now,
			Created:   map[string]creation{"a_default": {hash: "1", at: now.Add(-time.Second)}},
		}, want: "", wait: unseen - time.Second},
		{name: "but not for ever", in: mirrorInput{
			Static:    static("1"),
			NodeKnown: true,
			Now:       now,
			Created:   map[string]creation{"a_default": {hash: "1", at: now.Add(-unseen)}},
		}, want: "create a"},
		{name: "nor for another version", in: mirrorInput{
			Static:    static("2"),
			NodeKnown: true,
			Now:       now,
			Created:   map[string]creation{"a_default": {hash: "1", at: now}},
		}, want: "create a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Busy = func(string, *v1.Pod) bool { return tc.busy }
			plan := planMirrors(tc.in)
			var got []string
			for _, s := range plan.do {
				if s.remove {
					got = append(got, "delete "+string(s.pod.UID))
				} else {
					got = append(got, "create "+s.pod.Name)
				}
			}
			if strings.Join(got, ", ") != tc.want || plan.wait != tc.wait {
				t.Errorf("plan = %v wait %v, want %s wait %v", got, plan.wait, tc.want, tc.wait)
			}
		})
	}
}

// mirrorStory runs a store with a server that delivers the changes of its pods.
func mirrorStory(t *testing.T, busy func(string) bool) (*Store, *fakeAPI, *script, *recorder) {
	r, api, file := newRecorder(), newFakeAPI(), newScript(pod.SourceFile)
	api.source = newScript(pod.SourceAPI)
	if busy == nil {
		busy = func(string) bool { return false }
	}
	s := start(t, Config{
		NodeName: "node1",
		Sources:  []Source{file, api.source},
		Events:   r,
		OnChange: r.changed,
		Log:      r.logger(),
		Mirrors: &MirrorConfig{
			API:   api,
			Node:  api.node,
			Busy:  busy,
			Older: func(name string, _ types.UID) bool { return busy(name) },
		},
	})
	return s, api, file, r
}

func TestMirrorPodLifecycle(t *testing.T) {
	parity.Proves(t, "SRC-19", "SRC-23", "SRC-24")
	parity.ProvesPart(t, 2, "SRC-14")
	parity.ProvesPart(t, 2, "SRC-25")
	parity.ProvesPart(t, 2, "SRC-20")
	parity.ProvesPart(t, 2, "SRC-26")
	synctest.Test(t, func(t *testing.T) {
		s, api, file, r := mirrorStory(t, nil)
		api.set(func() { api.absent = true })
		file.replace(staticPod("a", "1"))
		synctest.Wait()
		if got := api.took(); got != "" {
			t.Errorf("before the API server was listed: %s", got)
		}
		api.source.replace()
		synctest.Wait()
		if got := api.took(); got != "" {
			t.Errorf("without a node: %s", got)
		}

		api.set(func() { api.absent, api.noUID = false, true })
		s.SyncMirrors()
		synctest.Wait()
		if got := api.took(); got != "" {
			t.Errorf("with a node without a UID: %s", got)
		}
		api.set(func() { api.noUID = false })
		s.SyncMirrors()
		synctest.Wait()
		m := api.get("a_default")
		if m == nil {
			t.Fatal("no mirror pod once the node is registered")
		}
		o := m.OwnerReferences
		if len(o) != 1 || o[0].Kind != "Node" || o[0].APIVersion != "v1" || o[0].Name != "node1" ||
			o[0].UID != "node-uid" ||
			o[0].Controller == nil || !*o[0].Controller {
			t.Errorf("owner = %v", o)
		}
		if m.Annotations["kubernetes.io/config.mirror"] != "1" || m.Spec.NodeName != "node1" {
			t.Errorf("mirror = %v", m)
		}
		if _, got, _ := s.Get("1"); got == nil || got.UID != m.UID {
			t.Errorf("the store does not know the mirror: %v", got)
		}

		// Another client changes its annotation and changes it back: that alone is no change.
		api.took()
		r.takeChanges()
		for _, hash := range []string{"other", "1"} {
			edited := m.DeepCopy()
			edited.Annotations["kubernetes.io/config.mirror"] = hash
			api.source.deliver(func(to Sink) { to.Set(edited) })
			synctest.Wait()
			if calls, changes := api.took(), r.takeChanges(); calls != "" || len(changes) > 0 {
				t.Errorf("with config.mirror %q: %s, woke %v", hash, calls, changes)
			}
		}

		// Deleted by force.
		api.set(func() { delete(api.pods, "a_default") })
		api.source.deliver(func(to Sink) { to.Remove(m.UID) })
		synctest.Wait()
		if got := api.took(); got != "create a" {
			t.Errorf("after a forced deletion: %s", got)
		}
		if _, _, known := s.Get("1"); !known {
			t.Error("deleting the mirror pod stopped the static pod")
		}

		// Deleted with grace.
		asked := api.get("a_default").DeepCopy()
		asked.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		api.source.deliver(func(to Sink) { to.Set(asked) })
		synctest.Wait()
		if got := api.took(); got != "delete a, create a" {
			t.Errorf("after a deletion with grace: %s", got)
		}

		// Another version, then none.
		file.replace(staticPod("a", "2"))
		synctest.Wait()
		if got := api.took(); got != "delete a, create a" ||
			api.get("a_default").Annotations[pod.AnnotationConfigMirror] != "2" {
			t.Errorf("after an edit: %s", got)
		}
		file.replace()
		synctest.Wait()
		if got := api.took(); got != "delete a" || api.get("a_default") != nil {
			t.Errorf("after the manifest went: %s", got)
		}
		if n := r.logged("level=WARN"); n != 0 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

func TestMirrorStaysWhilePodTerminates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ending := false
		s, api, file, _ := mirrorStory(t, func(string) bool { mu.Lock(); defer mu.Unlock(); return ending })
		api.source.replace()
		file.replace(staticPod("a", "1"))
		synctest.Wait()
		api.took()
		mu.Lock()
		ending = true
		mu.Unlock()
		file.replace(staticPod("a", "2"))
		time.Sleep(time.Minute)
		if got := api.took(); got != "" {
			t.Errorf("while the old pod ends: %s", got)
		}
		mu.Lock()
		ending = false
		mu.Unlock()
		s.SyncMirrors()
		synctest.Wait()
		if got := api.took(); got != "delete a, create a" {
			t.Errorf("once it has ended: %s", got)
		}
	})
}

func TestMirrorFailureIsRetriedAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, api, file, r := mirrorStory(t, nil)
		api.source.replace()
		api.set(func() { api.fail = errors.New("server is away") })
		file.replace(staticPod("a", "1"))
		time.Sleep(5 * time.Minute)
		if n := strings.Count(api.took(), "create"); n < 20 || n > 60 {
			t.Errorf("%d attempts in 5 minutes", n)
		}
		api.set(func() { api.fail = nil })
		time.Sleep(maxMirrorRetry)
		if api.get("a_default") == nil {
			t.Error("no mirror pod after the server came back")
		}
		if n := r.logged("failed to reconcile mirror pods"); n != 1 || r.logged("server is away") != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log.String())
		}
		if r.logged("reconciled mirror pods again") != 1 {
			t.Error("the recovery is not mentioned")
		}
	})
}

func TestNoMirrorWhileNodeIsDeleted(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-26")
	synctest.Test(t, func(t *testing.T) {
		s, api, file, _ := mirrorStory(t, nil)
		api.set(func() { api.terminating = true })
		api.source.replace()
		file.replace(staticPod("a", "1"))
		s.SyncMirrors()
		synctest.Wait()
		if got := api.took(); got != "" {
			t.Errorf("the node is being deleted: %s", got)
		}
		// The node is no longer being deleted, or was created again.
		api.set(func() { api.terminating = false })
		s.SyncMirrors()
		synctest.Wait()
		if got := api.took(); got != "create a" {
			t.Errorf("the node is there again: %s", got)
		}
	})
}
