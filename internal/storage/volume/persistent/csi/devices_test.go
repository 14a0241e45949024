package csi

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

func needLoops(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Skip(t, "this machine has no loop devices")
	}
}

// A block volume is published as a symlink, a mapping and a loop device, and all of it is removed,
// also after a restart.
func TestBlockVolume(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	needLoops(t)
	parity.Proves(t, "VOL-70")
	parity.ProvesPart(t, 4, "VOL-06")
	parity.ProvesPart(t, 10, "VOL-10")
	parity.ProvesPart(t, 2, "VOL-25")
	n := newTestNode(t, nil)
	n.volumeOf("disk", func(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) })
	n.attachTo("test-disk")
	must(t, os.MkdirAll(filepath.Dir(n.driver.Data("test-disk")), 0o750))
	p := podWith("a", "disk")
	c := &p.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v-disk", DevicePath: "/dev/xvda"}}
	for range 2 {
		n.ready(p)
		devices, err := n.Devices(p, c)
		must(t, err)
		link := filepath.Join(n.root, "pods/uid-a/volumeDevices/kubernetes.io~csi/pv-disk")
		if len(devices) != 1 || devices[0].HostPath != link || devices[0].ContainerPath != "/dev/xvda" ||
			devices[0].Permissions != "mrw" {
			t.Errorf("devices: %+v", devices)
		}
		base := filepath.Join(n.root, "plugins/kubernetes.io/csi/volumeDevices")
		published := filepath.Join(base, "publish/pv-disk/uid-a")
		if to, err := os.Readlink(link); err != nil || to != published {
			t.Errorf("the link leads to %s, %v", to, err)
		}
		var st, mapped unix.Stat_t
		must(t, unix.Stat(link, &st))
		global := filepath.Join(base, "pv-disk/dev/uid-a")
		must(t, unix.Stat(global, &mapped))
		if st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != mapped.Rdev {
			t.Errorf("the pod gets %o of %x, mapped is %x", st.Mode, st.Rdev, mapped.Rdev)
		}
		if loop, err := mount.LoopOf(global); err != nil || loop == "" {
			t.Errorf("no loop device holds the device: %v", err)
		}
		req := n.driver.Last("NodeStageVolume").(*csiv1.NodeStageVolumeRequest)
		if req.StagingTargetPath != filepath.Join(base, "staging/pv-disk") || req.VolumeCapability.GetBlock() == nil {
			t.Errorf("staged with %v", req)
		}
		if got := read(t,
			filepath.Join(base, "pv-disk/data/vol_data.json")); !strings.Contains(got, `"volumeHandle":"test-disk"`) {
			t.Errorf("record: %s", got)
		}
		if !n.events.Has(
			`Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-disk" globalMapPath "`+
				base+
				`/pv-disk/dev"`,
		) ||
			!n.events.Has(
				`Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-disk" volumeMapPath "`+
					filepath.Dir(link)+`"`) {
			t.Errorf("events: %v", n.events.Lines())
		}
		n.restart()
	}
	n.release(p)
	n.idle()
	var undone []string
	for _, m := range n.driver.Methods() {
		if strings.HasPrefix(m, "NodeUn") {
			undone = append(undone, m)
		}
	}
	if !slices.Equal(undone, []string{"NodeUnpublishVolume", "NodeUnstageVolume"}) {
		t.Errorf("undone by %v", undone)
	}

	n.driver.Always("NodePublishVolume", csidriver.Fault{Err: status.Error(codes.Internal, "no disk")})
	n.Want(p)
	n.until("an event", func() bool {
		return n.events.Has(
			`Warning FailedMapVolume MapVolume.MapPodDevice failed for volume "pv-disk" : rpc error: code = Internal desc = ` +
				`no disk`,
		)
	})
	n.release(p)
	n.idle()
}

// Permissions follow from how the pod uses the volume: read and write, mknod, or read-only.
func TestBlockDevicePermissions(t *testing.T) {
	needLoops(t)
	parity.ProvesPart(t, 10, "VOL-10")
	parity.ProvesPart(t, 2, "VOL-25")
	n := newTestNode(t, nil)
	for name, readOnly := range map[string]bool{"rw": false, "ro": true} {
		n.volumeOf(name, func(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) })
		n.attachTo("test-" + name)
		must(t, os.MkdirAll(filepath.Dir(n.driver.Data("test-"+name)), 0o750))
		p := podWith(name, name)
		p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = readOnly
		c := &p.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v-" + name, DevicePath: "/dev/xvda"}}
		n.ready(p)
		devices, err := n.Devices(p, c)
		must(t, err)
		want := map[bool]string{false: "mrw", true: "r"}[readOnly]
		if len(devices) != 1 || devices[0].Permissions != want {
			t.Errorf("%s: %+v, want permission %s", name, devices, want)
		}
		n.release(p)
		n.idle()
	}
}

// A volume that has expanded is expanded on the node and in the claim's status.
func TestExpansion(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-58")
	parity.ProvesPart(t, 2, "VOL-67")
	parity.ProvesPart(t, 10, "VOL-10")
	parity.ProvesPart(t, 5, "VOL-21")
	expanded := func(n *testNode, pending bool) {
		n.driverObject(nil)
		n.volumeOf("data", func(pv *v1.PersistentVolume) {
			pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("3Gi")}
			pv.Spec.CSI.NodeExpandSecretRef = &v1.SecretReference{Namespace: "sec", Name: "expand"}
		})
		n.api.change(func() {
			n.api.secrets["sec/expand"] = &v1.Secret{Data: map[string][]byte{"user": []byte("e")}}
			st := &n.api.claims["data"].Status
			st.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
			if pending {
				st.AllocatedResources = v1.ResourceList{v1.ResourceStorage: resource.MustParse("3Gi")}
				st.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
					v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending,
				}
				st.Conditions = []v1.PersistentVolumeClaimCondition{
					{
						Type:               v1.PersistentVolumeClaimFileSystemResizePending,
						Status:             v1.ConditionTrue,
						LastTransitionTime: metav1.Now(),
					},
				}
			}
		})
	}
	claim := func(n *testNode) v1.PersistentVolumeClaimStatus {
		c, err := n.api.Claim(t.Context(), "ns", "data")
		must(t, err)
		return c.Status
	}
	size := func(st v1.PersistentVolumeClaimStatus) string {
		q := st.Capacity[v1.ResourceStorage]
		return q.String()
	}
	for _, noStage := range []bool{false, true} {
		n := newTestNode(t, func(c *csidriver.Config) { c.NoStage = noStage })
		expanded(n, true)
		p := podWith("a", "data")
		n.ready(p)
		st := claim(n)
		if size(st) != "3Gi" || len(st.Conditions) > 0 || len(st.AllocatedResourceStatuses) > 0 {
			t.Errorf("claim: %+v", st)
		}
		if len(n.api.patches) != 2 || !strings.Contains(n.api.patches[0], "NodeResizeInProgress") {
			t.Errorf("patches: %v", n.api.patches)
		}
		req := n.driver.Last("NodeExpandVolume").(*csiv1.NodeExpandVolumeRequest)
		staged, order := filepath.Join(n.root, "plugins/kubernetes.io/csi/test.csi.keelson.example",
			fmt.Sprintf("%x", sha256.Sum256([]byte("test-data"))),
			"globalmount"), []string{"NodeStageVolume", "NodePublishVolume", "NodeExpandVolume"}
		if noStage {
			staged, order = "", order[1:]
		}
		if req.VolumePath != n.mounted(p)["v-data"] || req.StagingTargetPath != staged ||
			req.CapacityRange.RequiredBytes != 3<<30 || req.Secrets["user"] != "e" ||
			!slices.Equal(n.driver.Methods(), order) {
			t.Errorf("expanded with %v, calls %v", req, n.driver.Methods())
		}
		for _, about := range []string{"a ", "claim data "} {
			want := about +
				`Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv-data" n1`
			if !slices.Contains(n.events.Lines(), want) {
				t.Errorf("events: %q, want %q", n.events.Lines(), want)
			}
		}
		n.release(p)
		n.idle()
	}

	// An infeasible expansion is reported once; the pod gets the volume at its old size.
	n := newTestNode(t, nil)
	expanded(n, true)
	n.driver.Always("NodeExpandVolume", csidriver.Fault{Err: status.Error(codes.OutOfRange, "too big")})
	p := podWith("a", "data")
	n.ready(p)
	st := claim(n)
	if size(st) != "1Gi" ||
		st.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizeInfeasible ||
		!slices.ContainsFunc(st.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == "NodeResizeError" &&
				c.Message ==
					"failed to expand pvc with Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = "+
						"too big"
		}) {
		t.Errorf("claim: %+v", st)
	}
	failed := `a Warning FailedMount MountVolume.Setup failed while expanding volume for volume "pv-data" : ` +
		`Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = too big`
	if all := n.events.Lines(); !slices.Contains(all, failed) || n.driver.Count("NodeExpandVolume") != 1 {
		t.Errorf("events: %q, calls %v", all, n.driver.Methods())
	}
	n.release(p)
	n.idle()

	// An expansion that is not possible while the volume is in use does not block the pod and is
	// not retried.
	n = newTestNode(t, nil)
	expanded(n, true)
	n.driver.Always("NodeExpandVolume", csidriver.Fault{Err: status.Error(codes.FailedPrecondition, "in use")})
	p = podWith("a", "data")
	n.ready(p)
	n.lastReady(p)
	st = claim(n)
	if size(st) != "1Gi" || st.AllocatedResourceStatuses[v1.ResourceStorage] != "NodeResizeInProgress" ||
		!slices.ContainsFunc(st.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == "NodeResizeError" &&
				c.Message ==
					"failed to expand pvc with Expander.NodeExpand failed to expand the volume : rpc error: code = "+
						"FailedPrecondition desc = in use"
		}) {
		t.Errorf("claim: %+v", st)
	}
	if n.driver.Count("NodeExpandVolume") != 1 {
		t.Errorf("calls %v", n.driver.Methods())
	}
	n.release(p)
	n.idle()

	// A driver without node expansion is an error when the node has to expand.
	n = newTestNode(t, func(c *csidriver.Config) { c.NoExpand = true })
	expanded(n, true)
	p = podWith("a", "data")
	n.Want(p)
	n.until("the error", func() bool {
		return slices.Contains(
			n.events.Lines(),
			`a Warning FailedMount MountVolume.Setup failed while expanding volume for volume "pv-data" : NodeExpand is not `+
				`supported by the CSI driver test.csi.keelson.example`,
		)
	})
	n.release(p)
	n.idle()

	// A read-only volume is not expanded.
	n = newTestNode(t, nil)
	expanded(n, false)
	p = podWith("a", "data")
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	n.ready(p)
	if n.driver.Count("NodeExpandVolume") > 0 ||
		!n.events.Has(
			`Warning FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "pv-data" requested read-only `+
				`file system`,
		) {
		t.Errorf("calls %v, events %v", n.driver.Methods(), n.events.Lines())
	}
	if pub := n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest); !pub.Readonly {
		t.Error("published for writing")
	}
	if err := os.WriteFile(filepath.Join(n.mounted(p)["v-data"], "f"), nil, 0o600); err == nil {
		t.Error("a read-only volume was written")
	}
	n.release(p)
	n.idle()
}

// An agent may have been killed before it removed the last directory of a block volume. It is
// removed at the next start if it is empty.
func TestCleanUpBlockVolumeDirectory(t *testing.T) {
	n := newTestNode(t, nil)
	n.stop()
	base := filepath.Join(n.root, "plugins/kubernetes.io/csi/volumeDevices")
	for _, d := range []string{"pv-empty", "pv-full/dev"} {
		must(t, os.MkdirAll(filepath.Join(base, d), 0o750))
	}
	write(t, filepath.Join(base, "pv-full/dev/kept"), "x")
	n.start()
	n.until("the empty one to be gone",
		func() bool { _, err := os.Lstat(filepath.Join(base, "pv-empty")); return os.IsNotExist(err) })
	if got := read(t, filepath.Join(base, "pv-full/dev/kept")); got != "x" {
		t.Errorf("what was in the other reads %q", got)
	}
}

// The volume of a running pod is expanded without a restart.
func TestOnlineExpansion(t *testing.T) {
	n := newTestNode(t, nil)
	n.driverObject(nil)
	n.volumeOf("data", nil)
	p := podWith("a", "data")
	n.ready(p)
	if n.driver.Count("NodeExpandVolume") > 0 {
		t.Error("a volume of the right size was expanded")
	}
	n.api.change(func() {
		pv := n.api.volumes["pv-data"].DeepCopy()
		pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("5Gi")
		n.api.volumes["pv-data"] = pv
	})
	ready := n.lastReady(p)
	if n.driver.Count("NodeExpandVolume") != 1 || ready.RenewAt.IsZero() {
		t.Errorf("calls %v, looked at again %v", n.driver.Methods(), ready.RenewAt)
	}
	if got := n.driver.Count("NodePublishVolume"); got != 1 {
		t.Errorf("a look at a volume that the pod has published it again: %d times in all", got)
	}
	n.release(p)
	n.idle()
}

// A failed online expansion does not affect the pod and is retried.
func TestOnlineExpansionFails(t *testing.T) {
	parity.ProvesPart(t, 10, "VOL-10")
	parity.ProvesPart(t, 5, "VOL-21")
	n := newTestNode(t, nil)
	n.stop()
	n.recheck = 20 * time.Millisecond
	n.start()
	n.driverObject(nil)
	n.volumeOf("data", nil)
	p := podWith("a", "data")
	n.ready(p)
	n.driver.Next("NodeExpandVolume", csidriver.Fault{Err: status.Error(codes.Internal, "no space")})
	n.api.change(func() {
		pv, claim := n.api.volumes["pv-data"].DeepCopy(), n.api.claims["data"].DeepCopy()
		pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("5Gi")
		claim.Status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: resource.MustParse("5Gi")}
		claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
			v1.ResourceStorage: "NodeResizePending",
		}
		n.api.volumes["pv-data"], n.api.claims["data"] = pv, claim
	})
	n.until("the event of the failure", func() bool {
		return slices.Contains(
			n.events.Lines(),
			`a Warning VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv-data" : Expander.NodeExpand `+
				`failed to expand the volume : rpc error: code = Internal desc = no space`,
		)
	})
	if !n.State(p.UID).Ready {
		t.Error("the pod does not have its volume any more")
	}
	n.until("the second attempt", func() bool {
		c, err := n.api.Claim(t.Context(), "ns", "data")
		must(t, err)
		size := c.Status.Capacity[v1.ResourceStorage]
		return size.String() == "5Gi" && len(c.Status.Conditions) == 0 && len(c.Status.AllocatedResourceStatuses) == 0
	})
	if s := n.State(p.UID); !s.Ready || n.driver.Count("NodeExpandVolume") != 2 ||
		n.driver.Count("NodePublishVolume") != 1 {
		t.Errorf("calls %v, state %+v", n.driver.Methods(), s)
	}
	n.release(p)
	n.idle()
}

// The driver reports usage and, if enabled, health.
func TestMeasure(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-58")
	parity.ProvesPart(t, 2, "VOL-28")
	parity.ProvesPart(t, 3, "VOL-27")
	for _, tc := range []struct {
		asked, abnormal bool
		want            *volume.Health
	}{
		{false, true, nil},
		{true, false, &volume.Health{Message: "as it is"}},
		{true, true, &volume.Health{Abnormal: true, Message: "as it is"}},
	} {
		n := newTestNode(t, func(c *csidriver.Config) { c.Abnormal = tc.abnormal })
		n.stop()
		n.health = tc.asked
		n.start()
		n.driverObject(nil)
		n.volumeOf("data", nil)
		p := podWith("a", "data")
		n.ready(p)
		m, err := n.measure(p)
		must(t, err)
		if m.Capacity == 0 || m.Inodes == 0 || n.driver.Count("NodeGetVolumeStats") != 1 {
			t.Errorf("measured %+v", m)
		}
		if (m.Health == nil) != (tc.want == nil) || m.Health != nil && *m.Health != *tc.want {
			t.Errorf("it is %+v, want %+v", m.Health, tc.want)
		}
		n.release(p)
		n.idle()
	}
}
