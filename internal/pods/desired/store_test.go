package desired

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestReadyWhenEverySourceHasDelivered(t *testing.T) {
	parity.Differs(t, "SRC-15", "0121")
	r, api, file := newRecorder(), newScript(pod.SourceAPI), newScript(pod.SourceFile)
	s := start(t, Config{
		NodeName: "node1",
		Sources:  []Source{api, file},
		Events:   r,
		OnChange: r.changed,
		Log:      r.logger(),
	})
	if s.Ready() {
		t.Fatal("ready before anything was delivered")
	}
	file.replace(staticPod("a", "1"))
	api.deliver(func(to Sink) { to.Set(apiPod("b", "2")) })
	if s.Ready() {
		t.Error("ready before the API server was listed")
	}
	api.replace()
	<-s.ReadyC()
	if got := names(s.All()); got != "file/a" {
		t.Errorf("pods = %s: a list replaces what was there", got)
	}
}

// What an earlier agent left of a static pod is decided when the sources of static pods
// are ready, also while the API server is unavailable.
func TestOnSourceReadyOncePerSource(t *testing.T) {
	parity.Differs(t, "SRC-15", "0121")
	r, api, file := newRecorder(), newScript(pod.SourceAPI), newScript(pod.SourceFile)
	var s *Store
	var heard []string
	s = start(t, Config{
		NodeName: "node1",
		Sources:  []Source{api, file},
		Events:   r,
		OnChange: r.changed,
		Log:      r.logger(),
		OnSourceReady: func() {
			heard = append(heard, fmt.Sprintf("file %t, all %t", s.SourceReady(pod.SourceFile), s.Ready()))
		},
	})
	api.deliver(func(to Sink) { to.Set(apiPod("b", "2")) })
	file.replace()
	file.replace(staticPod("a", "1"))
	api.replace()
	api.replace()
	if want := []string{"file true, all false", "file true, all true"}; !slices.Equal(heard, want) {
		t.Errorf("sources ready %q, want %q", heard, want)
	}
}

func TestAPIPodChanges(t *testing.T) {
	parity.Proves(t, "SRC-13")
	parity.ProvesPart(t, 2, "SRC-14")
	parity.ProvesPart(t, 3, "SRC-08")
	r, api := newRecorder(), newScript(pod.SourceAPI)
	seen := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var forced []types.UID
	updates := 0
	s := start(t, Config{
		NodeName: "node1",
		Sources:  []Source{api},
		Events:   r,
		OnChange: r.changed,
		OnForced: func(uid types.UID) { forced = append(forced, uid) },
		OnUpdate: func(old, p *v1.Pod) { updates++ },
		Log:      r.logger(),
		Now:      func() time.Time { return seen },
	})
	edit := func(f func(*v1.Pod)) *v1.Pod {
		p := apiPod("a", "1")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "mine": "1"}
		f(p)
		return p
	}
	set := func(p *v1.Pod) { api.deliver(func(to Sink) { to.Set(p) }) }
	now := metav1.Now()
	for _, step := range []struct {
		name, log string
		pod       *v1.Pod
	}{
		{"first sight", "SyncLoop ADD", edit(func(*v1.Pod) {})},
		{"nothing new but its version", "", edit(func(p *v1.Pod) { p.ResourceVersion = "2" })},
		{"when it was seen", "", edit(func(p *v1.Pod) { p.Annotations["kubernetes.io/config.seen"] = "never" })},
		{"its source", "", edit(func(p *v1.Pod) { p.Annotations["kubernetes.io/config.source"] = "http" })},
		{"annotations of others", "SyncLoop UPDATE", edit(func(p *v1.Pod) { p.Annotations["mine"] = "2" })},
		{"labels", "SyncLoop UPDATE",
			edit(func(p *v1.Pod) { p.Annotations["mine"] = "2"; p.Labels = map[string]string{"a": "b"} })},
		{"specification", "SyncLoop UPDATE", edit(func(p *v1.Pod) { p.Spec.Containers[0].Image = "other" })},
		{"status", "SyncLoop RECONCILE",
			edit(func(p *v1.Pod) { p.Spec.Containers[0].Image = "other"; p.Status.Phase = v1.PodRunning })},
		{"deletion", "SyncLoop DELETE",
			edit(func(p *v1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, ptr.To[int64](30) })},
		{"shorter grace", "SyncLoop DELETE",
			edit(func(p *v1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, ptr.To[int64](5) })},
		{"labels of a pod that is being deleted", "SyncLoop DELETE", edit(func(p *v1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, ptr.To[int64](5)
			p.Labels = map[string]string{"a": "c"}
		})},
		{"its status", "SyncLoop RECONCILE", edit(func(p *v1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, ptr.To[int64](5)
			p.Labels = map[string]string{"a": "c"}
			p.Status.Phase = v1.PodFailed
		})},
	} {
		r.log.Reset()
		updates = 0
		set(step.pod)
		if want := step.log == "SyncLoop UPDATE" || step.log == "SyncLoop DELETE"; (updates == 1) != want {
			t.Errorf("%s: %d updates were reported", step.name, updates)
		}
		if changes := r.takeChanges(); (len(changes) > 0) != (step.log != "") {
			t.Errorf("%s: woke %v", step.name, changes)
		}
		if step.log != "" && r.logged(step.log) != 1 {
			t.Errorf("%s: no %q in the log:\n%s", step.name, step.log, r.log.String())
		}
		got, mirror, ok := s.Get("1")
		if !ok || mirror != nil || got.Annotations["kubernetes.io/config.source"] != "api" ||
			got.Annotations["kubernetes.io/config.seen"] != "2026-01-02T03:04:05.000000006Z" {
			t.Errorf("%s: annotations %v", step.name, got.Annotations)
		}
		if hash, has := got.Annotations["kubernetes.io/config.hash"]; has {
			t.Errorf("%s: a pod of the API server has the hash %q of a static one", step.name, hash)
		}
		if step.pod.ResourceVersion != got.ResourceVersion {
			t.Errorf("%s: version %s is not kept", step.name, step.pod.ResourceVersion)
		}
	}
	r.log.Reset()
	api.deliver(func(to Sink) { to.Remove("1") })
	if _, _, ok := s.Get("1"); ok || r.logged("SyncLoop REMOVE") != 1 || len(r.takeChanges()) != 1 {
		t.Errorf("removal: still there %v, log:\n%s", ok, r.log.String())
	}
	// A pod that disappears without a deletion timestamp is not force-deleted: it may be bound to another node.
	set(apiPod("b", "2"))
	api.deliver(func(to Sink) { to.Remove("2") })
	if !slices.Equal(forced, []types.UID{"1"}) {
		t.Errorf("force-deleted: %v", forced)
	}
}

func TestDuplicateNamesInOneSource(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	parity.Proves(t, "SRC-12")
	for source, want := range map[pod.Source]struct{ stays, goes types.UID }{
		pod.SourceHTTP: {"1", "3"},
		pod.SourceFile: {"3", "1"},
	} {
		r, script := newRecorder(), newScript(source)
		s := start(t, Config{
			NodeName: "node1",
			Sources:  []Source{script},
			Events:   r,
			OnChange: r.changed,
			Log:      r.logger(),
		})
		script.replace(staticPod("a", "1"), staticPod("b", "2"), staticPod("a", "3"))
		if got, all := names(s.All()), fmt.Sprintf("%[1]s/a %[1]s/b", source); got != all {
			t.Errorf("pods = %s, want %s", got, all)
		}
		if _, _, ok := s.Get(want.stays); !ok {
			t.Errorf("of two pods from %s the one with UID %s must stay", source, want.stays)
		}
		event := fmt.Sprintf("a Warning FailedValidation Error validating pod a_default(%s) from %s "+
			"due to duplicate pod name \"a\", ignoring", want.goes, source)
		if ev := r.Take(); len(ev) != 1 || ev[0] != event {
			t.Errorf("events = %q, want %q", ev, event)
		}
	}
}

func TestNewStaticVersionReplacesOld(t *testing.T) {
	r, file := newRecorder(), newScript(pod.SourceFile)
	s := start(t, Config{NodeName: "node1", Sources: []Source{file}, Events: r, OnChange: r.changed, Log: r.logger()})
	file.replace(staticPod("a", "1"))
	r.takeChanges()
	file.replace(staticPod("a", "2"))
	if got := r.takeChanges(); !slices.Equal(got, []types.UID{"1", "2"}) {
		t.Errorf("woken %v: the old leaves before the new comes", got)
	}
	file.replace(staticPod("a", "2"))
	if got := r.takeChanges(); len(got) != 0 {
		t.Errorf("woken %v by the same pod", got)
	}
	if p, ok := s.ByName("default", "a"); !ok || p.Spec.UID != "2" {
		t.Errorf("ByName = %v %v", p.Spec, ok)
	}
}

func TestMirrorMatchesOneVersion(t *testing.T) {
	parity.Proves(t, "SRC-21")
	r, api, file := newRecorder(), newScript(pod.SourceAPI), newScript(pod.SourceFile)
	s := start(t, Config{
		NodeName: "node1",
		Sources:  []Source{api, file},
		Events:   r,
		OnChange: r.changed,
		Log:      r.logger(),
	})
	file.replace(staticPod("a", "1"))
	elsewhere := mirrorPod("a", "m3", "1")
	elsewhere.Namespace = "elsewhere"
	api.replace(mirrorPod("other", "m2", "1"), elsewhere)
	if _, m, _ := s.Get("1"); m != nil {
		t.Errorf("mirror %s in namespace %s is taken for that of default/a", m.Name, m.Namespace)
	}
	if got := r.takeChanges(); !slices.Equal(got, []types.UID{"1"}) {
		t.Errorf("woken %v: once as a pod, and not for what are mirrors of others", got)
	}
	api.replace(mirrorPod("a", "m1", "1"), mirrorPod("other", "m2", "1"), elsewhere)
	if got := r.takeChanges(); !slices.Equal(got, []types.UID{"1"}) {
		t.Errorf("woken %v: once for its mirror", got)
	}
	if _, m, _ := s.Get("1"); m == nil || m.UID != "m1" {
		t.Errorf("mirror = %v", m)
	}
	if got := names(s.All()); got != "file/a" {
		t.Errorf("pods = %s: mirror pods are not pods to run", got)
	}
	if _, _, ok := s.Get("m1"); ok {
		t.Error("a mirror pod is known as a pod")
	}
	api.deliver(func(to Sink) { to.Set(mirrorPod("a", "m1", "0")) })
	if _, m, _ := s.Get("1"); m != nil {
		t.Errorf("a mirror of another version is taken for this one's")
	}
	api.replace()
	if _, m, known := s.Get("1"); m != nil || !known {
		t.Errorf("after the mirror went: mirror %v, known %v", m, known)
	}
}
