package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/csidriver"
)

// oneBlock returns a pod with a block volume.
func oneBlock(name string) *v1.Pod {
	p := podWith(name, "disk")
	c := &p.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "v-disk", DevicePath: "/dev/xvda"}}
	return p
}

func blockOf(modes ...v1.PersistentVolumeAccessMode) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) {
		pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
		pv.Spec.AccessModes = modes
	}
}

// Events have upstream's texts for failed driver calls.
func TestDriverFailureEvents(t *testing.T) {
	failing := csidriver.Fault{Err: status.Error(codes.Internal, "no")}
	for _, tc := range []struct {
		name   string
		method string
		pod    func(*testNode) *v1.Pod
		want   string
	}{
		{
			name:   "the abilities, for a file system",
			method: "NodeGetCapabilities",
			pod: func(n *testNode) *v1.Pod {
				n.volumeOf("data", nil)
				return podWith("a", "data")
			},
			want: `Warning FailedMount MountVolume.MountDevice failed for volume "pv-data" : ` +
				`rpc error: code = Internal desc = no`,
		},
		{
			name:   "the abilities, for a device",
			method: "NodeGetCapabilities",
			pod: func(n *testNode) *v1.Pod {
				n.volumeOf("disk", blockOf())
				return oneBlock("a")
			},
			want: `Warning FailedMapVolume MapVolume.SetUpDevice failed for volume "pv-disk" : kubernetes.io/csi: ` +
				`blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: ` +
				`rpc error: code = Internal desc = no`,
		},
		{
			name:   "the abilities, for an inline volume",
			method: "NodeGetCapabilities",
			pod: func(*testNode) *v1.Pod {
				p := podWith("a")
				p.Spec.Volumes = []v1.Volume{{
					Name:         "scratch",
					VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}},
				}}
				p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/s"}}
				return p
			},
			want: `Warning FailedMount MountVolume.SetUp failed for volume "scratch" : kubernetes.io/csi: ` +
				`mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: ` +
				`rpc error: code = Internal desc = no`,
		},
		{
			name:   "publishing",
			method: "NodePublishVolume",
			pod: func(n *testNode) *v1.Pod {
				n.volumeOf("data", nil)
				return podWith("a", "data")
			},
			want: `Warning FailedMount MountVolume.SetUp failed for volume "pv-data" : rpc error: code = Internal desc = no`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newTestNode(t, nil)
			n.driverObject(func(s *storagev1.CSIDriverSpec) {
				s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{
					storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral,
				}
			})
			n.driver.Always(tc.method, failing)
			p := tc.pod(n)
			n.Want(p)
			n.until(tc.want, func() bool { return n.events.Has(tc.want) })
			n.driver.Always(tc.method, csidriver.Fault{})
			n.release(p)
			n.idle()
		})
	}
}

// If the cleanup after a failure fails too, only the log has both errors: the event has the first
// one.
func TestEventsOmitCleanupErrors(t *testing.T) {
	err := persistent.Failed(persistent.Request{Spec: persistent.Spec{Name: "pv-data"}}, persistent.StepAttach,
		persistent.Undone(errors.New("no"), errors.New("remove /node/path: busy")))
	named, ok := err.(interface{ Text() string })
	if !ok || named.Text() != `MountVolume.WaitForAttach failed for volume "pv-data" : no` ||
		!persistent.IsUnknown(err) {
		t.Errorf("shown as %v", err)
	}
	want := "MountVolume.WaitForAttach failed for volume \"pv-data\" : no\nremove /node/path: busy"
	if err.Error() != want {
		t.Errorf("the log has %q, want %q", err, want)
	}
}

func TestBlockVolumeEvents(t *testing.T) {
	needLoops(t)
	n := newTestNode(t, nil)
	n.volumeOf("disk", blockOf(v1.ReadWriteOncePod))
	n.api.change(func() {
		n.api.node.VolumesAttached = []v1.AttachedVolume{{Name: "kubernetes.io/csi/test.csi.keelson.example^test-disk"}}
	})
	must(t, os.MkdirAll(filepath.Dir(n.driver.Data("test-disk")), 0o750))
	a, b := oneBlock("a"), oneBlock("b")
	n.Want(a)
	n.until("that it is not attached", func() bool {
		return n.events.Has(`Warning FailedMapVolume MapVolume.WaitForAttach failed for volume "pv-disk" : ` +
			fmt.Sprintf("volume test-disk has GET error for volume attachment csi-%x: ",
				sha256.Sum256([]byte("test-disk"+driverName+"n1"))))
	})
	n.attachTo("test-disk")
	n.ready(a)
	n.Want(b)
	n.until("that another pod has it", func() bool {
		return n.events.Has(`Warning FailedMapVolume MapVolume.SetUpDevice failed for volume "pv-disk" : ` +
			`volume uses the ReadWriteOncePod access mode and is already in use by another pod`)
	})
	n.release(a)
	n.release(b)
	n.idle()
}
