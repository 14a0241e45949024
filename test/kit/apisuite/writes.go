package apisuite

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func testErrors(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	_, err := pods.Get(ctx, "none", metav1.GetOptions{})
	refused(t, "get a pod that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)
	_, err = pods.Patch(ctx, "none", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
	refused(t, "patch a pod that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)
	err = pods.Delete(ctx, "none", metav1.DeleteOptions{})
	refused(t, "delete a pod that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)
	_, err = s.CoreV1().Pods("suite-none").Create(ctx, pod("a", ""), metav1.CreateOptions{})
	refused(t, "create in a namespace that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)

	s.create(t, pod("a", ""))
	_, err = pods.Create(ctx, pod("a", ""), metav1.CreateOptions{})
	refused(t, "create a pod that exists", err, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	_, err = pods.Create(ctx, pod("", ""), metav1.CreateOptions{})
	refused(t, "create a pod without a name", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	elsewhere := pod("b", "")
	elsewhere.Namespace = "default"
	_, err = pods.Create(ctx, elsewhere, metav1.CreateOptions{})
	refused(
		t,
		"create in another namespace than that of the object",
		err,
		http.StatusBadRequest,
		metav1.StatusReasonBadRequest,
	)
	_, err = pods.Patch(ctx, "a", types.MergePatchType, []byte(`[`), metav1.PatchOptions{})
	refused(t, "a patch that cannot be read", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	_, err = pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.colour=red"})
	refused(t, "a selector of a field that has none", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	_, err = pods.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"nodeName":"n"}}`), metav1.PatchOptions{})
	refused(t, "a change of the node", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	err = s.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/" + s.name + "/colours").Do(ctx).Error()
	refused(t, "get a resource that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)
	err = s.CoreV1().RESTClient().Get().AbsPath("/apis/suite.keelson.dev/v1/colours").Do(ctx).Error()
	refused(t, "get a group that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func testCreate(t *testing.T, s *space) {
	unnamed := pod("", "n")
	unnamed.GenerateName = "web-"
	unnamed.Status.Phase = corev1.PodRunning
	p := s.create(t, unnamed)
	if len(p.Name) != len("web-")+5 || p.UID == "" || p.ResourceVersion == "" || p.CreationTimestamp.IsZero() ||
		p.Generation != 1 {
		t.Errorf("created %+v", p.ObjectMeta)
	}
	if p.Status.Phase != corev1.PodPending || p.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("status %+v", p.Status)
	}
	c := p.Spec.Containers[0]
	if p.Spec.RestartPolicy != corev1.RestartPolicyAlways || p.Spec.DNSPolicy != corev1.DNSClusterFirst ||
		*p.Spec.TerminationGracePeriodSeconds != 30 || !*p.Spec.EnableServiceLinks || *p.Spec.Priority != 0 ||
		p.Spec.SecurityContext == nil || c.ImagePullPolicy != corev1.PullIfNotPresent ||
		c.TerminationMessagePath != "/dev/termination-log" ||
		c.TerminationMessagePolicy != corev1.TerminationMessageReadFile {
		t.Errorf("defaults of %+v", p.Spec)
	}
}

func testConflict(t *testing.T, s *space) {
	ctx, maps := t.Context(), s.CoreV1().ConfigMaps(s.name)
	first, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next := first.DeepCopy()
	next.Data = map[string]string{"k": "one"}
	second, err := maps.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil || second.ResourceVersion == first.ResourceVersion {
		t.Fatalf("%+v, %v", second, err)
	}
	_, err = maps.Update(ctx, next, metav1.UpdateOptions{})
	refused(t, "update of an old version", err, http.StatusConflict, metav1.StatusReasonConflict)
	next.ResourceVersion = ""
	next.Data["k"] = "two"
	if got, err := maps.Update(ctx, next, metav1.UpdateOptions{}); err != nil || got.Data["k"] != "two" {
		t.Errorf("an update without a version: %v, %v", got, err)
	}
	next.UID = "another"
	_, err = maps.Update(ctx, next, metav1.UpdateOptions{})
	refused(t, "update of another UID", err, http.StatusConflict, metav1.StatusReasonConflict)
}

// testPatch sends what a status manager sends: lists are merged by their keys.
func testPatch(t *testing.T, s *space) {
	p := s.create(t, pod("a", "n"))
	patch := func(body string, sub ...string) *corev1.Pod {
		t.Helper()
		got, err := s.CoreV1().
			Pods(s.name).
			Patch(t.Context(), p.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	patch(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"},{"type":"Initialized","status":"True"}],`+
		`"podIPs":[{"ip":"10.0.0.1"}],"podIP":"10.0.0.1"}}`, "status")
	got := patch(`{"metadata":{"uid":"`+string(p.UID)+`"},"status":{"$setElementOrder/conditions":[{"type":"Initialized"},{"type":"Ready"}],`+
		`"conditions":[{"type":"Ready","status":"True","reason":"Up"}]}}`, "status")
	conditions := ""
	for _, c := range got.Status.Conditions {
		conditions += fmt.Sprintf("%s=%s/%s ", c.Type, c.Status, c.Reason)
	}
	if conditions != "Initialized=True/ Ready=True/Up " || got.Status.Phase != corev1.PodRunning ||
		got.Status.PodIP != "10.0.0.1" {
		t.Errorf("conditions %s of %+v", conditions, got.Status)
	}
	got = patch(`{"status":{"conditions":[{"type":"Initialized","$patch":"delete"}],"phase":null}}`, "status")
	if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Type != "Ready" || got.Status.Phase != "" {
		t.Errorf("after deletions %+v", got.Status)
	}
	got = patch(`{"metadata":{"labels":{"app":null,"b":"c"},"annotations":{"d":"e"}}}`)
	if len(got.Labels) != 1 || got.Labels["b"] != "c" || got.Annotations["d"] != "e" {
		t.Errorf("labels %v, annotations %v", got.Labels, got.Annotations)
	}
}

func testPatchPreconditions(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	p := s.create(t, pod("a", "n"))
	_, err := pods.Patch(
		ctx,
		"a",
		types.StrategicMergePatchType,
		[]byte(`{"metadata":{"uid":"another"},"status":{"message":"m"}}`),
		metav1.PatchOptions{},
		"status",
	)
	refused(t, "a patch for another UID", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	_, err = pods.Patch(
		ctx,
		"a",
		types.StrategicMergePatchType,
		[]byte(`{"status":{"message":"m"}}`),
		metav1.PatchOptions{},
		"status",
	)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": p.ResourceVersion},
		"status":   map[string]any{"message": "late"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = pods.Patch(ctx, "a", types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	refused(t, "a patch for an old version", err, http.StatusConflict, metav1.StatusReasonConflict)
	if got := s.get(t, "a"); got.Status.Message != "m" {
		t.Errorf("message %q", got.Status.Message)
	}
}

func testStatus(t *testing.T, s *space) {
	ctx, pods := t.Context(), s.CoreV1().Pods(s.name)
	p := s.create(t, pod("a", "n"))
	changed := p.DeepCopy()
	changed.Status.Phase = corev1.PodRunning
	changed.Spec.Containers[0].Image = "app:2"
	got, err := pods.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Phase != corev1.PodRunning || got.Spec.Containers[0].Image != "app:1" || got.Generation != 1 {
		t.Errorf("after an update of the status: %+v", got)
	}
	changed = got.DeepCopy()
	changed.Status.Phase = corev1.PodFailed
	changed.Spec.Containers[0].Image = "app:2"
	if got, err = pods.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got.Status.Phase != corev1.PodRunning || got.Spec.Containers[0].Image != "app:2" || got.Generation != 2 {
		t.Errorf("after an update of the spec: %+v", got)
	}
	// The status of a container that will not be restarted cannot return to running.
	final := pod("b", "n")
	final.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.create(t, final)
	_, err = pods.Patch(
		ctx,
		"b",
		types.StrategicMergePatchType,
		[]byte(`{"status":{"containerStatuses":[{"name":"main","image":"",`+
			`"imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":0}}}]}}`),
		metav1.PatchOptions{},
		"status",
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pods.Patch(
		ctx,
		"b",
		types.StrategicMergePatchType,
		[]byte(`{"status":{"containerStatuses":[{"name":"main","image":"",`+
			`"imageID":"","ready":false,"restartCount":0,"state":{"terminated":null,"running":{}}}]}}`),
		metav1.PatchOptions{},
		"status",
	)
	refused(t, "a container that comes back", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
}

func testUnchanged(t *testing.T, s *space) {
	p := s.create(t, pod("a", "n"))
	got, err := s.CoreV1().
		Pods(s.name).
		Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(`{"status":{"phase":"Pending"}}`),
			metav1.PatchOptions{}, "status")
	if err != nil || got.ResourceVersion != p.ResourceVersion {
		t.Errorf("version %s after %s, %v", got.ResourceVersion, p.ResourceVersion, err)
	}
}

func testBinding(t *testing.T, s *space) {
	s.create(t, pod("a", ""))
	bind := func(to string) error {
		return s.CoreV1().Pods(s.name).Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: s.name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: to},
		}, metav1.CreateOptions{})
	}
	if err := bind("n"); err != nil {
		t.Fatal(err)
	}
	got := s.get(t, "a")
	if c := got.Status.Conditions; got.Spec.NodeName != "n" || len(c) != 1 || c[0].Type != corev1.PodScheduled ||
		c[0].Status != corev1.ConditionTrue {
		t.Errorf("bound %q, %+v", got.Spec.NodeName, c)
	}
	refused(t, "bind once more", bind("m"), http.StatusConflict, metav1.StatusReasonConflict)
}
