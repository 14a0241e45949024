package persistent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"

	"keelson/internal/storage/volume"
)

func TestUnknownErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.New("refused"), false},
		{nil, false},
		{Unknown(errors.New("cut off")), true},
		{fmt.Errorf("stage: %w", Unknown(errors.New("cut off"))), true},
		{fmt.Errorf("stage: %w", context.DeadlineExceeded), true},
		{context.Canceled, true},
		{&ExpandError{Kind: Infeasible, Err: errors.New("too large")}, false},
	} {
		if got := IsUnknown(c.err); got != c.want {
			t.Errorf("IsUnknown(%v) = %v", c.err, got)
		}
	}
	if Unknown(nil) != nil {
		t.Error("nothing went wrong, and that is an error")
	}
}

func TestClaimName(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}
	for _, c := range []struct {
		src      v1.VolumeSource
		name     string
		readOnly bool
	}{
		{v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}, "data", false},
		{
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				ClaimName: "data",
				ReadOnly:  true,
			}},
			"data",
			true,
		},
		{v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, "web-0-scratch", false},
	} {
		if name, ro := claimOf(p, &v1.Volume{
			Name:         "scratch",
			VolumeSource: c.src,
		}); name != c.name || ro != c.readOnly {
			t.Errorf("claimOf(%+v) = %s, %v", c.src, name, ro)
		}
	}
}

func TestCheckClaimAndVolume(t *testing.T) {
	good := func() (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
		return &v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{UID: "1"},
				Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
				Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
			},
			&v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv"},
				Spec:       v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: "1"}},
			}
	}
	for _, c := range []struct {
		name   string
		change func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)
		want   string
	}{
		{"bound both ways", func(*v1.PersistentVolumeClaim, *v1.PersistentVolume) {}, ""},
		{
			"being deleted",
			func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.DeletionTimestamp = ptr.To(metav1.Now()) },
			"PVC is being deleted",
		},
		{"being deleted, and protected", func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"example.com/a",
				"kubernetes.io/pvc-protection"}
		}, ""},
		{"being deleted, and held by others", func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"example.com/a"}
		}, "PVC is being deleted"},
		{
			"pending",
			func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimPending },
			"PVC is not bound",
		},
		{
			"lost",
			func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimLost },
			"PVC is not bound",
		},
		{
			"without a name",
			func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Spec.VolumeName = "" },
			"PVC has empty pvc.Spec.VolumeName",
		},
		{"not bound back", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil },
			`found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim`},
		{
			"of an earlier claim of the name",
			func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "0" },
			`found PV object pv but its pv.Spec.ClaimRef.UID 0 does not point to claim.UID 1`,
		},
	} {
		claim, pv := good()
		c.change(claim, pv)
		err := checkClaim(claim)
		if err == nil {
			err = checkBound(claim, pv)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// boundAPI has a claim of any name, bound to a volume of the same name.
type boundAPI struct{ API }

func (boundAPI) Claim(_ context.Context, ns, name string) (*v1.PersistentVolumeClaim, error) {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: name},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}, nil
}

func (boundAPI) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return nil, fmt.Errorf("persistentvolumes %q not found", name)
}

func TestUnresolvedVolume(t *testing.T) {
	v := New(Config{API: boundAPI{}})
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", UID: "1"}}
	for want, src := range map[string]v1.VolumeSource{
		"PVC ns/web-0-data was not created for pod ns/web-0 (pod is not owner)": {
			Ephemeral: &v1.EphemeralVolumeSource{},
		},
		`error processing PVC ns/c: failed to fetch PV c from API server: persistentvolumes "c" not found`: {
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
		},
	} {
		_, err := v.resolve(t.Context(), p, &v1.Volume{Name: "data", VolumeSource: src})
		var unresolved *volume.Unresolved
		if !errors.As(err, &unresolved) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestReadWriteOncePodOfVolume(t *testing.T) {
	pv := func(modes ...v1.PersistentVolumeAccessMode) Spec {
		return Spec{PV: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{AccessModes: modes}}}
	}
	for _, c := range []struct {
		s    Spec
		want bool
	}{
		{
			pv(v1.ReadWriteOncePod),
			true,
		},
		{pv(v1.ReadWriteOnce), false},
		{pv(v1.ReadWriteOncePod, v1.ReadWriteOnce), false},
		{pv(), false},
		{Spec{Inline: &v1.Volume{}}, false},
	} {
		if got := isReadWriteOncePod(c.s); got != c.want {
			t.Errorf("isReadWriteOncePod(%+v) = %v", c.s, got)
		}
	}
}

func TestVolumeGIDAnnotation(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-108")
	for text, want := range map[string]*int64{
		"":                     nil,
		"1234":                 ptr.To[int64](1234),
		"0":                    ptr.To[int64](0),
		"-1":                   nil,
		"wheel":                nil,
		"99999999999999999999": nil,
	} {
		pv := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"pv.beta.kubernetes.io/gid": text}},
		}
		if got := groupOf(pv); !reflect.DeepEqual(got, want) {
			t.Errorf("group %q is %v", text, got)
		}
	}
	if groupOf(nil) != nil {
		t.Error("no volume has a group")
	}
}

// A volume is first waited for until it is in volumesInUse, then until it is attached.
func TestAttachmentOrder(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-03")
	parity.ProvesPart(t, 3, "VOL-04")
	parity.ProvesPart(t, 4, "VOL-06")
	inUse, attached := []v1.UniqueVolumeName{"other",
		"id"}, []v1.AttachedVolume{{Name: "other", DevicePath: "x"}, {Name: "id", DevicePath: "/dev/sdb"}}
	for _, c := range []struct {
		status v1.NodeStatus
		path   string
		waits  string
	}{
		{v1.NodeStatus{}, "", "volume to be added to the list of VolumesInUse in the node's volume status"},
		{
			v1.NodeStatus{VolumesAttached: attached},
			"",
			"volume to be added to the list of VolumesInUse in the node's volume status",
		},
		{v1.NodeStatus{VolumesInUse: inUse}, "", "volume to be attached according to node status"},
		{
			v1.NodeStatus{VolumesInUse: inUse, VolumesAttached: attached[:1]},
			"",
			"volume to be attached according to node status",
		},
		{v1.NodeStatus{VolumesInUse: inUse, VolumesAttached: attached}, "/dev/sdb", ""},
	} {
		path, w := attachment(c.status, "id")
		if path != c.path || (w == nil) != (c.waits == "") || w != nil && (w.For != c.waits || !w.Attach) {
			t.Errorf("%+v: %q, %+v", c.status, path, w)
		}
	}
}

func sized(capacity, known string, status v1.ClaimResourceStatus) Spec {
	amount := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	s := Spec{
		Name: "pv",
		PV:   &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{Capacity: amount(capacity)}},
		Claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", ResourceVersion: "7"},
			Status:     v1.PersistentVolumeClaimStatus{Capacity: amount(known)},
		},
	}
	if status != "" {
		setResizeStatus(s.Claim, status)
	}
	return s
}

// The patch, applied as by the API server, gives the intended status and keeps fields of other
// writers.
func TestClaimStatusPatch(t *testing.T) {
	cond := func(kind v1.PersistentVolumeClaimConditionType, text string) v1.PersistentVolumeClaimCondition {
		return v1.PersistentVolumeClaimCondition{Type: kind, Status: v1.ConditionTrue, Message: text}
	}
	full := func() *v1.PersistentVolumeClaim {
		c := sized("2Gi", "1Gi", v1.PersistentVolumeClaimNodeResizePending).Claim
		c.Status.Phase = v1.ClaimBound
		c.Status.AllocatedResourceStatuses["example.com/other"] = "Mine"
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{
			cond("Mine", "stays"),
			cond(v1.PersistentVolumeClaimResizing, ""),
			cond(v1.PersistentVolumeClaimFileSystemResizePending, ""),
			cond(v1.PersistentVolumeClaimNodeResizeError, "old"),
		}
		c.Status.Conditions[3].Status = v1.ConditionFalse
		return c
	}
	two := resource.MustParse("2Gi")
	for name, change := range map[string]func(*v1.PersistentVolumeClaim){
		"nothing":    func(*v1.PersistentVolumeClaim) {},
		"begun":      inProgress,
		"failing":    failing(errors.New("no space"), false),
		"infeasible": failing(errors.New("too large"), true),
		"finished":   func(c *v1.PersistentVolumeClaim) { finished(c, two) },
	} {
		old := full()
		next := old.DeepCopy()
		change(next)
		guarded := name == "begun" || name == "finished"
		patch, err := statusPatch(old, next, guarded)
		if err != nil {
			t.Fatal(err)
		}
		if name == "nothing" {
			if patch != nil {
				t.Errorf("no change is written as %s", patch)
			}
			continue
		}
		before, err := json.Marshal(old)
		if err != nil {
			t.Fatal(err)
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, v1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got v1.PersistentVolumeClaim
		if err := json.Unmarshal(after, &got); err != nil {
			t.Fatal(err)
		}
		if a, b := got.Status.Capacity[v1.ResourceStorage], next.Status.Capacity[v1.ResourceStorage]; a.Cmp(b) != 0 ||
			!reflect.DeepEqual(got.Status.AllocatedResourceStatuses, next.Status.AllocatedResourceStatuses) ||
			len(got.Status.Conditions) != len(next.Status.Conditions) {
			t.Errorf("%s: the claim becomes %+v, want %+v", name, got.Status, next.Status)
		}
		for _, c := range next.Status.Conditions {
			if !slices.ContainsFunc(got.Status.Conditions,
				func(g v1.PersistentVolumeClaimCondition) bool { return g.Type == c.Type && g.Message == c.Message }) {
				t.Errorf("%s: condition %s is lost: %+v", name, c.Type, got.Status.Conditions)
			}
		}
		var logged struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(patch, &logged); err != nil || (logged.Metadata.ResourceVersion == "7") != guarded {
			t.Errorf("%s: the patch has resource version %q: %s", name, logged.Metadata.ResourceVersion, patch)
		}
	}
	if c := full(); c.Status.Conditions[3].Message == "old" {
		finished(c, two)
		if len(c.Status.Conditions) != 1 || c.Status.Conditions[0].Type != "Mine" || resizeStatus(c) != "" {
			t.Errorf("after the end of growing: %+v", c.Status)
		}
	}
}

func TestVolumeModeCheck(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{
			{VolumeMounts: []v1.VolumeMount{{Name: "files"}}, VolumeDevices: []v1.VolumeDevice{{Name: "disk"}}},
		},
		InitContainers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "early"}}}},
	}}
	for _, c := range []struct {
		name  string
		block bool
		ok    bool
	}{
		{"files", false, true},
		{"files", true, false},
		{"disk", true, true},
		{"disk", false, false},
		{"early", true, false},
		{"early", false, true},
	} {
		if err := checkMode(p, &v1.Volume{Name: c.name}, Spec{Block: c.block}); (err == nil) != c.ok {
			t.Errorf("%s, block %v: %v", c.name, c.block, err)
		}
	}
}

// The failed step is named as upstream does, once.
func TestFailedStep(t *testing.T) {
	r := Request{Spec: Spec{Name: "pv"}}
	block := Request{Spec: Spec{Name: "pv", Block: true}}
	cause := errors.New("no")
	for _, c := range []struct {
		r      Request
		s      Step
		want   string
		reason string
	}{
		{r, stepStage, `MountVolume.MountDevice failed for volume "pv" : no`, "FailedMount"},
		{r, stepMount, `MountVolume.SetUp failed for volume "pv" : no`, "FailedMount"},
		{block, stepStage, `MapVolume.SetUpDevice failed for volume "pv" : no`, "FailedMapVolume"},
		{block, stepMount, `MapVolume.MapPodDevice failed for volume "pv" : no`, "FailedMapVolume"},
	} {
		err := Failed(c.r, c.s, cause)
		var named *volume.Failure
		if !errors.As(err, &named) || err.Error() != c.want || named.Reason != c.reason || !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
		if again := Failed(c.r, stepMount, err); again != err {
			t.Errorf("named twice: %v", again)
		}
	}
	if Failed(r, stepStage, nil) != nil {
		t.Error("success is a failure")
	}
}

func TestMountOptions(t *testing.T) {
	const legacy = "volume.beta.kubernetes.io/mount-options"
	for _, c := range []struct {
		name  string
		pv    *v1.PersistentVolume
		own   []string
		wants []string
	}{
		{"of a volume that the pod names", nil, []string{"ro"}, []string{"ro"}},
		{"none", &v1.PersistentVolume{}, nil, nil},
		{
			"of the specification",
			&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{MountOptions: []string{"noatime", "discard",
				"noatime"}}},
			[]string{"ro"},
			[]string{"discard", "noatime", "ro"},
		},
		{
			"of the annotation",
			&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{legacy: "soft,nolock"}}},
			nil,
			[]string{"nolock", "soft"},
		},
		{
			"of both",
			&v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{legacy: "soft"}},
				Spec:       v1.PersistentVolumeSpec{MountOptions: []string{"hard"}},
			},
			nil,
			[]string{"soft"},
		},
		{
			"of an empty annotation",
			&v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{legacy: ""}},
				Spec:       v1.PersistentVolumeSpec{MountOptions: []string{"hard"}},
			},
			nil,
			nil,
		},
	} {
		if got := (Spec{PV: c.pv}).MountOptions(c.own...); !slices.Equal(got, c.wants) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wants)
		}
	}
}

func TestCheckVolume(t *testing.T) {
	zoned := func(values ...string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: values},
			}}}}}
	}
	unknown := errors.New("unknown error")
	for _, c := range []struct {
		name     string
		affinity *v1.VolumeNodeAffinity
		block    bool
		err      error // of the look at the node
		want     string
	}{
		{name: "a volume for every node", err: unknown},
		{name: "one that requires nothing", affinity: &v1.VolumeNodeAffinity{}, err: unknown},
		{name: "one for this zone", affinity: zoned("b", "a")},
		{
			name:     "one for another zone",
			affinity: zoned("b"),
			want:     `MountVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms`,
		},
		{
			name:     "a device for another zone",
			affinity: zoned("b"),
			block:    true,
			want:     `MapVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms`,
		},
		{
			name:     "no term at all",
			affinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{}},
			want:     `MountVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms`,
		},
		{
			name:     "labels that cannot be read",
			affinity: zoned("a"),
			err:      unknown,
			want:     `MountVolume.NodeAffinity check failed for volume "v" : error retrieving node: unknown error`,
		},
	} {
		v := New(Config{
			NodeLabels: func(context.Context) (map[string]string, error) {
				return map[string]string{"zone": "a"}, c.err
			},
		})
		err := v.check(t.Context(), nil,
			Request{
				Spec: Spec{
					Name:  "v",
					Block: c.block,
					PV:    &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: c.affinity}},
				},
			})
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var f *volume.Failure
		if !errors.As(err, &f) || f.Error() != c.want || f.Reason != "FailedMount" {
			t.Errorf("%s: %+v, want %s", c.name, err, c.want)
		}
	}
}
