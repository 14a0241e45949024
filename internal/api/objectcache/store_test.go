package objectcache

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

type change struct {
	pods []types.UID
	ref  Ref
}

// start runs a store against the fake until the test ends.
func start(t *testing.T, f *fakeAPI) (*Store, chan change) {
	t.Helper()
	changes := make(chan change, 100)
	s := New(Config{
		Client: f.client(),
		Log:    slog.New(slog.DiscardHandler),
		OnChange: func(pods []types.UID, kind Kind, ns, name string) {
			slices.Sort(pods)
			changes <- change{pods, Ref{kind, ns, name}}
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return s, changes
}

func podWith(uid types.UID, ns string, maps ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: ns, Name: string(uid)}}
	for _, m := range maps {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
			Name: m,
			VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: m}},
			},
		})
	}
	return p
}

func cm(ns, name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{"k": value}}
}

func patient(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(stop)
	return ctx
}

func next(t *testing.T, changes chan change) change {
	t.Helper()
	select {
	case c := <-changes:
		return c
	case <-time.After(time.Minute):
		t.Fatal("no change was reported")
		return change{}
	}
}

func TestStoreSharesOneWatchAndFollowsChanges(t *testing.T) {
	f := newFakeAPI(t)
	s, changes := start(t, f)
	f.put(cm("a", "m", "one"))
	f.put(cm("b", "m", "other"))
	for range 2 { // registering again changes nothing
		s.Register(podWith("p1", "a", "m"))
		s.Register(podWith("p2", "a", "m"))
		s.Register(podWith("p3", "b", "m"))
	}
	got, err := s.ConfigMap(patient(t), "a", "m")
	if err != nil || got.Data["k"] != "one" {
		t.Fatalf("ConfigMap = %v, %v, want one", got, err)
	}
	if len(got.ManagedFields) > 0 {
		t.Error("managed fields are kept in memory")
	}
	if got, err = s.ConfigMap(patient(t), "b", "m"); err != nil || got.Data["k"] != "other" {
		t.Errorf("the other namespace's ConfigMap = %v, %v, want other", got, err)
	}
	if w, g := f.count("watch"), f.count("get"); w != 2 || g != 0 {
		t.Errorf("%d watches and %d reads for two objects, want 2 and 0", w, g)
	}
	f.put(cm("a", "m", "two"))
	if c := next(t, changes); !slices.Equal(c.pods, []types.UID{"p1", "p2"}) || c.ref.Name != "m" ||
		c.ref.Namespace != "a" {
		t.Errorf("change = %v, want p1 and p2 notified of a/m", c)
	}
	if got, err = s.ConfigMap(patient(t), "a", "m"); err != nil || got.Data["k"] != "two" {
		t.Errorf("ConfigMap = %v, %v, want two", got, err)
	}
	s.Unregister("p1")
	if f.watching() != 2 {
		t.Error("the watch ended while a pod needs it")
	}
	s.Unregister("p2")
	await.True(t, "the watch ends with the last pod", func() bool { return f.watching() == 1 })
	if _, err := s.ConfigMap(patient(t), "a", "m"); err == nil ||
		!strings.Contains(err.Error(), `object "a"/"m" not registered`) {
		t.Errorf("err = %v, want not registered", err)
	}
	s.Unregister("p2") // and again
	parity.Proves(t, "VOL-37")
}

func TestStoreMissingObject(t *testing.T) {
	f := newFakeAPI(t)
	s, changes := start(t, f)
	s.Register(podWith("p1", "a", "m"))
	_, err := s.ConfigMap(patient(t), "a", "m")
	if !apierrors.IsNotFound(err) || err.Error() != `configmap "m" not found` {
		t.Fatalf("err = %v, want configmap \"m\" not found", err)
	}
	f.put(cm("a", "m", "one"))
	next(t, changes)
	if got, err := s.ConfigMap(patient(t), "a", "m"); err != nil || got.Data["k"] != "one" {
		t.Errorf("ConfigMap = %v, %v, want one", got, err)
	}
	f.remove(cm("a", "m", ""))
	next(t, changes)
	if _, err := s.ConfigMap(patient(t), "a", "m"); !apierrors.IsNotFound(err) {
		t.Errorf("err = %v after removal, want not found", err)
	}
}

func TestStoreWatchIsRestarted(t *testing.T) {
	f := newFakeAPI(t)
	s, changes := start(t, f)
	f.put(cm("a", "kept", "one"))
	f.put(cm("a", "removed", "one"))
	f.put(cm("a", "changed", "one"))
	s.Register(podWith("p1", "a", "kept", "removed", "changed"))
	for _, name := range []string{"kept", "removed", "changed"} {
		if _, err := s.ConfigMap(patient(t), "a", name); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	f.refuse = 6
	f.mu.Unlock()
	f.hangUp()
	f.remove(cm("a", "removed", ""))
	f.put(cm("a", "changed", "two"))
	got := []string{next(t, changes).ref.Name, next(t, changes).ref.Name}
	if slices.Sort(got); !slices.Equal(got, []string{"changed", "removed"}) {
		t.Errorf("changes of %v, want changed and removed", got)
	}
	if m, err := s.ConfigMap(patient(t), "a", "changed"); err != nil || m.Data["k"] != "two" {
		t.Errorf("changed = %v, %v, want two", m, err)
	}
	if _, err := s.ConfigMap(patient(t), "a", "removed"); !apierrors.IsNotFound(err) {
		t.Errorf("err = %v, want not found", err)
	}
	await.True(t, "all three are watched again", func() bool { return f.watching() == 3 })
	if m, err := s.ConfigMap(patient(t), "a", "kept"); err != nil || m.Data["k"] != "one" {
		t.Errorf("kept = %v, %v, want one", m, err)
	}
	select {
	case c := <-changes:
		t.Errorf("change %v of what did not change", c)
	default:
	}
}

func TestStoreIgnoresOlderState(t *testing.T) {
	f := newFakeAPI(t)
	s, changes := start(t, f)
	f.put(cm("a", "m", "old"))
	old := f.objects["/api/v1/namespaces/a/configmaps/m"].DeepCopyObject().(object)
	f.put(cm("a", "m", "new"))
	s.Register(podWith("p1", "a", "m"))
	if m, err := s.ConfigMap(patient(t), "a", "m"); err != nil || m.Data["k"] != "new" {
		t.Fatalf("ConfigMap = %v, %v, want new", m, err)
	}
	f.mu.Lock()
	f.behind["/api/v1/namespaces/a/configmaps/m"] = old
	f.mu.Unlock()
	f.hangUp()
	await.True(t, "the storage is asked", func() bool { return f.count("get") > 0 })
	f.put(cm("a", "m", "newer"))
	next(t, changes)
	if m, err := s.ConfigMap(patient(t), "a", "m"); err != nil || m.Data["k"] != "newer" {
		t.Errorf("ConfigMap = %v, %v, want newer", m, err)
	}
}

func TestStoreReportsLateAnswer(t *testing.T) {
	f := newFakeAPI(t)
	f.put(cm("a", "m", "one"))
	f.refuse = 1 << 30
	s, changes := start(t, f)
	s.Register(podWith("p1", "a", "m"))
	await.True(t, "a watch is refused", func() bool { return f.count("watch") > 1 })
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	_, err := s.ConfigMap(ctx, "a", "m")
	if err == nil || !strings.Contains(err.Error(), "cannot read configmap a/m: ") ||
		!strings.Contains(err.Error(), "no relationship found") {
		t.Errorf("err = %v, want what was read and the server's words", err)
	}
	f.mu.Lock()
	f.refuse = 0
	f.mu.Unlock()
	next(t, changes)
	if m, err := s.ConfigMap(patient(t), "a", "m"); err != nil || m.Data["k"] != "one" {
		t.Errorf("ConfigMap = %v, %v, want one", m, err)
	}
}

// For a server that does not answer, the error is a timeout.
func TestStoreWithoutAnAnswer(t *testing.T) {
	f := newFakeAPI(t)
	s, _ := start(t, f)
	f.mu.Lock() // requests wait for it
	defer f.mu.Unlock()
	s.Register(podWith("p1", "a", "m"))
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	_, err := s.ConfigMap(ctx, "a", "m")
	if err == nil || err.Error() != "failed to sync configmap cache: timed out waiting for the condition" {
		t.Errorf("err = %v, want upstream's words", err)
	}
}

func TestStoreStopsWatchingImmutableObjects(t *testing.T) {
	f := newFakeAPI(t)
	s, changes := start(t, f)
	sec := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"},
		Data:       map[string][]byte{"k": []byte("v")},
	}
	f.put(sec)
	fixed := cm("a", "fixed", "one") // immutable from the start; the secret becomes so
	fixed.Immutable = ptr.To(true)
	f.put(fixed)
	f.put(cm("a", "open", "two"))
	with := func(uid types.UID, maps ...string) *v1.Pod {
		p := podWith(uid, "a", maps...)
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
		return p
	}
	s.Register(with("p1", "fixed"))
	read := func() {
		t.Helper()
		if got, err := s.Secret(patient(t), "a", "s"); err != nil || string(got.Data["k"]) != "v" {
			t.Fatalf("Secret = %v, %v", got, err)
		}
		if got, err := s.ConfigMap(patient(t), "a", "fixed"); err != nil || got.Data["k"] != "one" {
			t.Fatalf("ConfigMap = %v, %v", got, err)
		}
	}
	read()
	await.True(t, "only the secret is watched", func() bool { return f.watching() == 1 })
	sec = sec.DeepCopy()
	sec.Immutable = ptr.To(true)
	f.put(sec)
	next(t, changes)
	await.True(t, "the watch ends", func() bool { return f.watching() == 0 })
	// Another pod that refers to them does not start their watches again.
	s.Register(with("p2", "fixed", "open"))
	if got, err := s.ConfigMap(patient(t), "a", "open"); err != nil || got.Data["k"] != "two" {
		t.Errorf("ConfigMap = %v, %v", got, err)
	}
	read()
	if n := f.count("watch"); n != 3 || f.watching() != 1 {
		t.Errorf("%d watches, %d of them open; want one for each object, and one open", n, f.watching())
	}
	parity.Proves(t, "VOL-36")
}

func TestStoreWithoutServer(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler)})
	s.Register(podWith("p1", "a", "b"))
	_, err := s.ConfigMap(context.Background(), "a", "b")
	if err == nil || err.Error() != "cannot read configmap a/b: no API server configured" {
		t.Errorf("err = %v", err)
	}
	s.Unregister("p1")
}

func TestRefsOf(t *testing.T) {
	local := func(n string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: n} }
	env := func(n string) v1.Container {
		return v1.Container{
			EnvFrom: []v1.EnvFromSource{{
				ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: local(n + "-from")},
			}, {SecretRef: &v1.SecretEnvSource{LocalObjectReference: local(n + "-from")}}},
			Env: []v1.EnvVar{{Name: "plain"},
				{
					ValueFrom: &v1.EnvVarSource{
						ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local(n)},
					},
				},
				{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: local(n)}}}},
		}
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x"},
		Spec: v1.PodSpec{
			ImagePullSecrets: []v1.LocalObjectReference{local("pull"), local("")},
			InitContainers:   []v1.Container{env("init")},
			Containers:       []v1.Container{env("main")},
			EphemeralContainers: []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon(env("debug")),
			}},
			Volumes: []v1.Volume{
				{
					VolumeSource: v1.VolumeSource{
						ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: local("vol")},
					},
				},
				{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "vol"}}},
				{
					VolumeSource: v1.VolumeSource{
						Projected: &v1.ProjectedVolumeSource{
							Sources: []v1.VolumeProjection{{
								ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: local("proj")},
							}, {Secret: &v1.SecretProjection{LocalObjectReference: local("proj")}}},
						},
					},
				},
				{VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{NodePublishSecretRef: ptr.To(local("csi"))}}},
				{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			},
		},
	}
	var got []string
	for r := range maps.Keys(RefsOf(p)) {
		got = append(got, r.String())
	}
	slices.Sort(got)
	var want []string
	for _, n := range []string{"init", "main", "debug"} {
		want = append(want, "configmap x/"+n, "configmap x/"+n+"-from", "secret x/"+n, "secret x/"+n+"-from")
	}
	want = append(
		want,
		"secret x/pull",
		"configmap x/vol",
		"secret x/vol",
		"configmap x/proj",
		"secret x/proj",
		"secret x/csi",
	)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("refs are\n%v, want\n%v", got, want)
	}
}
