package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
)

// policy is an SELinux policy whose labels depend on the level only.
type policy struct{}

func (policy) FileLabel(o *v1.SELinuxOptions) (string, error) {
	switch {
	case o == nil || o.Level == "":
		return "", nil
	case strings.HasPrefix(o.Level, "bad"):
		return "", errors.New("no such level")
	}
	return "system_u:object_r:container_file_t:" + o.Level, nil
}

const (
	levelOne, levelTwo = "s0:c1,c2", "s0:c3,c4"
	optionOne          = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	optionTwo          = `context="system_u:object_r:container_file_t:s0:c3,c4"`
	labelOne           = "system_u:object_r:container_file_t:s0:c1,c2"
)

// newLabelNode is a node with SELinux and a driver that supports mounting with a label.
func newLabelNode(t testing.TB, all bool) *testNode {
	n := newTestNode(t, nil)
	n.stop()
	n.labels, n.all = policy{}, all
	n.start()
	n.driverObject(func(s *storagev1.CSIDriverSpec) { s.SELinuxMount = ptr.To(true) })
	return n
}

func withMode(mode ...v1.PersistentVolumeAccessMode) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) { pv.Spec.AccessModes = mode }
}

// leveled returns a pod that mounts claims, and whose containers have an SELinux level; empty for
// none.
func leveled(name, level string, claims ...string) *v1.Pod {
	p := podWith(name, claims...)
	p.Spec.SecurityContext = &v1.PodSecurityContext{}
	if level != "" {
		p.Spec.SecurityContext.SELinuxOptions = &v1.SELinuxOptions{Level: level}
	}
	return p
}

// flags returns the mount flags of all calls to the driver, with the calls in between.
func (n *testNode) flags() []string {
	var out []string
	for _, c := range n.driver.Calls() {
		switch r := c.Request.(type) {
		case *csiv1.NodeStageVolumeRequest:
			out = append(out, fmt.Sprintf("stage %v", r.VolumeCapability.GetMount().MountFlags))
		case *csiv1.NodePublishVolumeRequest:
			out = append(out, fmt.Sprintf("publish %v", r.VolumeCapability.GetMount().MountFlags))
		case *csiv1.NodeUnpublishVolumeRequest:
			out = append(out, "unpublish")
		case *csiv1.NodeUnstageVolumeRequest:
			out = append(out, "unstage")
		}
	}
	return out
}

func (n *testNode) expectFlags(want ...string) {
	n.t.Helper()
	if got := n.flags(); !slices.Equal(got, want) {
		n.t.Errorf("the driver got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// counted returns the label metrics that are not zero.
func (n *testNode) counted() map[string]float64 {
	n.t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(n.lasting)
	families, err := reg.Gather()
	must(n.t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "volume_manager_selinux_")
			out[name+"{"+strings.Join(labels, ",")+"}"] = m.Gauge.GetValue()
		}
	}
	return out
}

func (n *testNode) expectCounted(want map[string]float64) {
	n.t.Helper()
	if got := n.counted(); fmt.Sprint(got) != fmt.Sprint(want) {
		n.t.Errorf("counted %v\nwant %v", got, want)
	}
}

// Whether a volume is mounted with a label depends on its access mode, driver, pod and gate.
// Otherwise the runtime relabels the files.
func TestMountWithLabel(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-114")
	parity.ProvesPart(t, 7, "VOL-20")
	type spec = storagev1.CSIDriverSpec
	recursive, byMount := v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption
	const none = ""
	for name, c := range map[string]struct {
		mode   v1.PersistentVolumeAccessMode
		all    bool
		off    bool // SELinux is disabled
		driver *bool
		policy *v1.PodSELinuxChangePolicy
		level  string
		want   string
	}{
		"one pod's": {
			mode:   v1.ReadWriteOncePod,
			driver: ptr.To(true),
			level:  levelOne,
			want:   optionOne,
		},
		"one pod's, with the pod's label": {
			mode:   v1.ReadWriteOncePod,
			driver: ptr.To(true),
			level:  levelOne,
			policy: &byMount,
			want:   optionOne,
		},
		"not where the pod wants it file by file": {
			mode:   v1.ReadWriteOncePod,
			driver: ptr.To(true),
			level:  levelOne,
			policy: &recursive,
			want:   none,
		},
		"not by a driver that cannot": {
			mode:   v1.ReadWriteOncePod,
			driver: ptr.To(false),
			level:  levelOne,
			want:   none,
		},
		"not by a driver without seLinuxMount": {mode: v1.ReadWriteOncePod, level: levelOne, want: none},
		"not without a level":                  {mode: v1.ReadWriteOncePod, driver: ptr.To(true), want: none},
		"not without SELinux": {
			mode:   v1.ReadWriteOncePod,
			driver: ptr.To(true),
			level:  levelOne,
			off:    true,
			want:   none,
		},
		"not others than one pod's": {
			mode:   v1.ReadWriteOnce,
			driver: ptr.To(true),
			level:  levelOne,
			want:   none,
		},
		"not others, even if the pod wants it": {
			mode:   v1.ReadWriteMany,
			driver: ptr.To(true),
			level:  levelOne,
			policy: &byMount,
			want:   none,
		},
		"all, if the gate is on": {
			mode:   v1.ReadWriteOnce,
			all:    true,
			driver: ptr.To(true),
			level:  levelOne,
			want:   optionOne,
		},
		"all of many nodes, if the gate is on": {
			mode:   v1.ReadWriteMany,
			all:    true,
			driver: ptr.To(true),
			level:  levelOne,
			policy: &byMount,
			want:   optionOne,
		},
		"with the gate, not where it is to be file by file": {
			mode:   v1.ReadWriteMany,
			all:    true,
			driver: ptr.To(true),
			level:  levelOne,
			policy: &recursive,
			want:   none,
		},
		"with the gate, not by a driver that cannot": {mode: v1.ReadWriteOnce, all: true, level: levelOne, want: none},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, nil)
			n.stop()
			n.all = c.all
			if !c.off {
				n.labels = policy{}
			}
			// The file system supports labels unless it is mounted with one.
			n.hasLabels = func(path string) (bool, error) {
				r := n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest)
				if path != r.TargetPath {
					return false, fmt.Errorf("%s was not published", path)
				}
				return !slices.Contains(r.VolumeCapability.GetMount().MountFlags, optionOne), nil
			}
			n.start()
			n.driverObject(func(s *spec) { s.SELinuxMount = c.driver })
			n.volumeOf("data", func(pv *v1.PersistentVolume) {
				withMode(c.mode)(pv)
				pv.Spec.MountOptions = []string{"noatime"}
			})
			p := leveled("a", c.level, "data")
			p.Spec.SecurityContext.SELinuxChangePolicy = c.policy
			n.ready(p)
			flags, label := "[noatime]", ""
			if c.want != none {
				flags, label = "[noatime "+c.want+"]", labelOne
			}
			n.expectFlags("stage "+flags, "publish "+flags)
			for _, dir := range []string{
				paths{n.root}.device(driverName, "test-data"),
				filepath.Join(n.root, "pods", string(p.UID), "volumes/kubernetes.io~csi/pv-data"),
			} {
				rec, err := readRecord(dir)
				if err != nil || rec.SELinux != label {
					t.Errorf("the record in %s has label %q, %v", dir, rec.SELinux, err)
				}
			}
			mounts, err := n.Mounts(context.Background(), p, &p.Spec.Containers[0], nil)
			must(t, err)
			if relabel := mounts[0].SELinuxRelabel; relabel != (c.want == none) {
				t.Errorf("the runtime is to label the files: %v", relabel)
			}
			want := map[string]float64{}
			if c.want != none {
				mode := map[v1.PersistentVolumeAccessMode]string{
					v1.ReadWriteOncePod: "RWOP",
					v1.ReadWriteOnce:    "RWO",
					v1.ReadWriteMany:    "RWX",
				}[c.mode]
				want["volumes_admitted_total{access_mode="+mode+",volume_plugin=kubernetes.io/csi/"+driverName+"}"] = 1
			}
			n.expectCounted(want)
			n.release(p)
			n.idle()
		})
	}
}

// If a driver announces label support but ignores the label, this is detected: the runtime relabels
// the files, so that the pod can use them.
func TestDriverIgnoresLabel(t *testing.T) {
	n := newTestNode(t, nil)
	n.stop()
	n.labels, n.hasLabels = policy{}, func(string) (bool, error) { return true, nil }
	n.start()
	n.driverObject(func(s *storagev1.CSIDriverSpec) { s.SELinuxMount = ptr.To(true) })
	n.volumeOf("data", withMode(v1.ReadWriteOncePod))
	p := leveled("a", levelOne, "data")
	n.ready(p)
	mounts, err := n.Mounts(context.Background(), p, &p.Spec.Containers[0], nil)
	must(t, err)
	if !mounts[0].SELinuxRelabel {
		t.Error("the files are not relabelled")
	}
	n.release(p)
	n.idle()
}

// The runtime could not relabel files of a read-only volume.
func TestReadOnlyVolumeIsNotRelabelled(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-114")
	n := newTestNode(t, nil)
	n.stop()
	n.hasLabels = func(string) (bool, error) { return true, nil }
	n.start()
	n.driverObject(nil)
	n.volumeOf("data", nil)
	for _, readOnly := range []bool{false, true} {
		p := podWith(fmt.Sprint("read-only-", readOnly), "data")
		p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = readOnly
		n.ready(p)
		mounts, err := n.Mounts(context.Background(), p, &p.Spec.Containers[0], nil)
		must(t, err)
		if mounts[0].SELinuxRelabel == readOnly {
			t.Errorf("read-only %v: the runtime is to label the files: %v", readOnly, mounts[0].SELinuxRelabel)
		}
		n.release(p)
	}
	n.idle()
}

// A pod that needs another label waits until no pod has the volume, which is then mounted again. A
// pod with the same label gets it at once.
func TestConflictingLabels(t *testing.T) {
	parity.ProvesPart(t, 7, "VOL-20")
	for name, c := range map[string]struct {
		second func(*v1.Pod)
		label  string // its label
		flags  string
	}{
		"another label": {
			func(p *v1.Pod) { p.Spec.SecurityContext.SELinuxOptions.Level = levelTwo },
			"system_u:object_r:container_file_t:" + levelTwo,
			"[" + optionTwo + "]",
		},
		"none": {func(p *v1.Pod) { p.Spec.SecurityContext.SELinuxOptions = nil }, "", "[]"},
		"another label, of a privileged container": {func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
				Privileged:     ptr.To(true),
				SELinuxOptions: &v1.SELinuxOptions{Level: levelTwo},
			}
		}, "system_u:object_r:container_file_t:" + levelTwo, "[" + optionTwo + "]"},
		"file by file": {
			func(p *v1.Pod) { p.Spec.SecurityContext.SELinuxChangePolicy = ptr.To(v1.SELinuxChangePolicyRecursive) },
			"",
			"[]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newLabelNode(t, true)
			n.volumeOf("data", withMode(v1.ReadWriteOnce))
			a, same, b := leveled("a", levelOne, "data"), leveled("same", levelOne, "data"), leveled("b", levelOne,
				"data")
			c.second(b)
			n.ready(a)
			n.Want(b)
			refusal := fmt.Sprintf(
				"Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[v-data], unattached volumes=[], "+
					"failed to process volumes=[v-data]: conflicting SELinux labels of volume pv-data: %q and %q",
				labelOne,
				c.label,
			)
			n.until("refusal", func() bool { return n.events.Has(refusal) })
			n.ready(same)
			n.release(a)
			if n.State(b.UID).Ready {
				t.Fatal("it has a volume that another pod has with another label")
			}
			n.release(same)
			n.until("the second pod", func() bool { return n.State(b.UID).Ready })
			one := "[" + optionOne + "]"
			n.expectFlags("stage "+one, "publish "+one, "publish "+one,
				"unpublish", "unpublish", "unstage", "stage "+c.flags,
				"publish "+c.flags)
			got := n.counted()
			labels := "{access_mode=RWO,volume_plugin=kubernetes.io/csi/" + driverName + "}"
			admitted := 1.0
			if c.label != "" {
				admitted = 2
			}
			if got["volume_context_mismatch_errors_total"+labels] < 1 ||
				got["volumes_admitted_total"+labels] != admitted ||
				len(got) != 2 {
				t.Errorf("counted %v", got)
			}
			n.release(b)
			n.idle()
		})
	}
}

// A pod that waits for a volume with another label is retried when the volume is free, without
// waiting for its back-off of minutes.
func TestPodWaitingForLabelIsRetried(t *testing.T) {
	n := newLabelNode(t, true)
	n.volumeOf("data", withMode(v1.ReadWriteOnce))
	a, b := leveled("a", levelOne, "data"), leveled("b", levelTwo, "data")
	n.ready(a)
	kind, r := n.request(b)
	if _, err := kind.Prepare(context.Background(), r); err == nil ||
		!strings.Contains(err.Error(), "conflicting SELinux labels") {
		t.Fatalf("it is not refused: %v", err)
	}
	if got := n.againFor(b.UID); got != 0 {
		t.Fatalf("it was looked at %d times while the volume was not free", got)
	}
	n.release(a)
	if got := n.againFor(b.UID); got != 1 {
		t.Errorf("it was looked at %d times when the volume became free", got)
	}
	n.idle()
}

// While not all volumes are mounted with labels, pods with different labels can share a volume. The
// conflict is counted as a warning once.
func TestLabelConflictWarnings(t *testing.T) {
	parity.ProvesPart(t, 7, "VOL-20")
	n := newLabelNode(t, false)
	n.volumeOf("data", withMode(v1.ReadWriteMany))
	n.volumeOf("own", withMode(v1.ReadWriteOnce))
	a, b := leveled("a", levelOne, "data"), leveled("b", levelTwo, "data")
	n.ready(a)
	n.expectCounted(map[string]float64{})
	n.ready(b)
	mismatch := "volume_context_mismatch_warnings_total{access_mode=RWX,volume_plugin=kubernetes.io/csi/" + driverName +
		"}"
	n.expectCounted(map[string]float64{mismatch: 1})
	n.lastReady(b) // periodic refreshes are not counted
	n.expectCounted(map[string]float64{mismatch: 1})

	two := leveled("two", levelOne, "own")
	two.Spec.Containers = append(two.Spec.Containers, *two.Spec.Containers[0].DeepCopy())
	two.Spec.Containers[1].Name, two.Spec.Containers[1].SecurityContext = "d", &v1.SecurityContext{
		SELinuxOptions: &v1.SELinuxOptions{Level: levelTwo},
	}
	n.ready(two)
	n.release(two)
	bad := leveled("bad", "bad", "own")
	n.ready(bad)
	n.lastReady(bad)
	n.expectCounted(map[string]float64{
		mismatch: 1,
		"pod_context_mismatch_warnings_total{access_mode=RWO}": 1,
		"container_warnings_total{access_mode=RWO}":            1,
	})
	for _, flags := range n.flags() {
		if strings.Contains(flags, "context=") {
			t.Errorf("a volume that not one pod alone has is mounted with a label: %s", flags)
		}
	}
	for _, p := range []*v1.Pod{a, b, bad} {
		n.release(p)
	}
	n.idle()
}

// A pod whose containers need different labels for the volume does not start, gets an event, and
// holds nothing. Each attempt is counted.
func TestContainersWithDifferentLabels(t *testing.T) {
	parity.ProvesPart(t, 7, "VOL-20")
	n := newLabelNode(t, false)
	n.volumeOf("data", withMode(v1.ReadWriteOncePod))
	two := leveled("two", levelOne, "data")
	two.Spec.Containers = append(two.Spec.Containers, *two.Spec.Containers[0].DeepCopy())
	two.Spec.Containers[1].Name, two.Spec.Containers[1].SecurityContext = "d", &v1.SecurityContext{
		SELinuxOptions: &v1.SELinuxOptions{Level: levelTwo},
	}
	bad := leveled("bad", "bad", "data")
	for _, p := range []*v1.Pod{two, bad} {
		kind, r := n.request(p)
		for range 2 {
			if _, err := kind.Prepare(context.Background(), r); err == nil {
				t.Fatalf("pod %s has the volume", p.Name)
			}
		}
	}
	n.expectCounted(map[string]float64{
		"pod_context_mismatch_errors_total{access_mode=RWOP}": 2,
		"container_errors_total{access_mode=RWOP}":            2,
	})
	if in := n.lasting.InUse(); len(in) > 0 || len(n.flags()) > 0 {
		t.Errorf("in use: %v; the driver got %v", in, n.flags())
	}
	n.Want(two)
	n.until("what is wrong", func() bool {
		return n.events.Has(`failed to process volumes=[v-data]: multiple SELinux labels found: ` + labelOne +
			`,system_u:object_r:container_file_t:` + levelTwo)
	})
	n.release(two)
	n.idle()
}

// The next agent uses the recorded labels: published volumes keep their labels even if the
// specification has changed, and pods that need other labels are still refused.
func TestLabelsAfterRestart(t *testing.T) {
	parity.ProvesPart(t, 7, "VOL-20")
	parity.ProvesPart(t, 2, "VOL-60")
	for name, forget := range map[string]bool{
		"recorded in the volume":                     false,
		"recorded in the pod only, as upstream does": true,
	} {
		t.Run(name, func(t *testing.T) {
			n := newLabelNode(t, true)
			n.volumeOf("data", withMode(v1.ReadWriteOnce))
			a, b := leveled("a", levelOne, "data"), leveled("b", levelTwo, "data")
			n.ready(a)
			n.stop()
			got := read(t, filepath.Join(n.root, "pods/uid-a/volumes/kubernetes.io~csi/pv-data/vol_data.json"))
			if !strings.Contains(got, `"seLinuxMountContext":"`+labelOne+`"`) {
				t.Errorf("record of the pod's volume: %s", got)
			}
			device := fmt.Sprintf("plugins/kubernetes.io/csi/%s/%x/vol_data.json", driverName,
				sha256.Sum256([]byte("test-data")))
			got = read(t, filepath.Join(n.root, device))
			if !strings.Contains(got, `"seLinuxMountContext":"`+labelOne+`"`) {
				t.Errorf("record of the volume: %s", got)
			}
			if forget {
				dir := paths{n.root}.device(driverName, "test-data")
				rec, err := readRecord(dir)
				must(t, err)
				rec.SELinux = ""
				must(t, writeRecord(dir, rec))
			}
			n.driverObject(nil) // the driver no longer supports labels
			n.start()
			n.ready(a)
			n.Want(b)
			n.until("refusal", func() bool {
				return n.events.Has("conflicting SELinux labels of volume pv-data: \"" + labelOne + "\" and \"\"")
			})
			one := "[" + optionOne + "]"
			n.expectFlags("stage "+one, "publish "+one, "stage "+one, "publish "+one)
			n.release(a)
			n.until("the second pod", func() bool { return n.State(b.UID).Ready })
			n.expectFlags("stage "+one, "publish "+one, "stage "+one, "publish "+one,
				"unpublish", "unstage", "stage []",
				"publish []")
			n.release(b)
			n.idle()
		})
	}
}

// A volume that was staged with another label and is not in use is staged again.
func TestRestageWithAnotherLabel(t *testing.T) {
	n := newLabelNode(t, true)
	n.volumeOf("data", withMode(v1.ReadWriteOnce))
	a, b := leveled("a", levelOne, "data"), leveled("b", levelTwo, "data")
	n.ready(a)
	unstaged := make(chan struct{})
	n.driver.Next("NodeUnstageVolume", csidriver.Fault{Err: status.Error(codes.Unavailable, "later"), Hang: unstaged})
	n.release(a)
	n.Want(b) // its attempt is after the failed unstaging
	close(unstaged)
	n.until("the second pod", func() bool { return n.State(b.UID).Ready })
	one, two := "["+optionOne+"]", "["+optionTwo+"]"
	n.expectFlags("stage "+one, "publish "+one, "unpublish", "unstage", "unstage", "stage "+two, "publish "+two)
	n.release(b)
	n.idle()
}

// The next agent reads the label of a staged volume without pods from its record. A pod without a
// label gets the volume after it was unstaged.
func TestStagedLabelOfEarlierAgent(t *testing.T) {
	n := newLabelNode(t, true)
	n.volumeOf("data", withMode(v1.ReadWriteOnce))
	a, b := leveled("a", levelOne, "data"), leveled("b", "", "data")
	n.ready(a)
	n.driver.Always("NodeUnstageVolume", csidriver.Fault{Err: status.Error(codes.Unavailable, "later")})
	n.release(a)
	n.restart()
	n.Want(b)
	n.until("an attempt for the pod to undo it", func() bool {
		return n.events.Has(
			`MountVolume.MountDevice failed for volume "pv-data" : rpc error: code = Unavailable desc = later`)
	})
	if n.State(b.UID).Ready || slices.Contains(n.flags(), "stage []") {
		t.Errorf("it is staged twice: %v", n.flags())
	}
	n.driver.Always("NodeUnstageVolume", csidriver.Fault{})
	n.until("the pod", func() bool { return n.State(b.UID).Ready })
	n.release(b)
	n.idle()
}

// Without SELinux no volume is mounted with a label, even if a record has one.
func TestRecordedLabelsWithoutSELinux(t *testing.T) {
	n := newLabelNode(t, true)
	n.volumeOf("data", withMode(v1.ReadWriteOnce))
	a := leveled("a", levelOne, "data")
	n.ready(a)
	n.stop()
	n.labels = nil
	n.start()
	n.ready(a)
	one := "[" + optionOne + "]"
	n.expectFlags("stage "+one, "publish "+one, "stage []", "publish []")
	n.Release(pod.RefOf(a))
	n.idle()
}

// An unusable record is restored with the current label of the volume.
func TestLabelOfRestoredRecord(t *testing.T) {
	n := newLabelNode(t, true)
	n.volumeOf("data", withMode(v1.ReadWriteOnce))
	a := leveled("a", levelOne, "data")
	n.ready(a)
	n.stop()
	write(t, filepath.Join(paths{n.root}.device(driverName, "test-data"), recordFile), "{")
	n.start()
	n.ready(a)
	one := "[" + optionOne + "]"
	n.expectFlags("stage "+one, "publish "+one, "stage "+one, "publish "+one)
	rec, err := readRecord(paths{n.root}.device(driverName, "test-data"))
	if err != nil || rec.SELinux != labelOne {
		t.Errorf("the restored record has label %q, %v", rec.SELinux, err)
	}
	n.release(a)
	n.idle()
}

var _ persistent.Labels = policy{}
