package csi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// Operations are counted under upstream's names: for file system and block volumes, in the pod and
// on the node, and online expansion. Checking whether a volume has expanded is not an operation.
func TestVolumeOperationMetrics(t *testing.T) {
	needLoops(t)
	parity.ProvesPart(t, 4, "VOL-11")
	n := newTestNode(t, nil)
	n.stop()
	n.recheck = 20 * time.Millisecond
	n.start()
	n.driverObject(nil)
	n.volumeOf("data", nil)
	n.volumeOf("disk", func(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) })
	must(t, os.MkdirAll(filepath.Dir(n.driver.Data("test-disk")), 0o750))
	counted := func(operation, status string) float64 {
		return scrape.Of(t, n.Manager)["storage_operation_duration_seconds{migrated=false,"+
			"operation_name="+operation+",status="+status+",volume_plugin=kubernetes.io/csi:test.csi.keelson.example}"]
	}
	is := func(when string, want map[string]float64) {
		t.Helper()
		got := map[string]float64{}
		for series, n := range scrape.Of(t, n.Manager) {
			if _, rest, ok := strings.Cut(series,
				"storage_operation_duration_seconds{migrated=false,operation_name="); ok {
				operation, rest, _ := strings.Cut(rest, ",status=")
				outcome, _, _ := strings.Cut(rest, ",")
				got[operation+" "+outcome] = n
			}
		}
		for name, n := range want {
			if got[name] != n {
				t.Errorf("%s: %s is counted %v times, want %v: %v", when, name, got[name], n, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: counted %v, want %v", when, got, want)
		}
	}
	a, b := podWith("a", "data"), podWith("b", "disk")
	b.Spec.Containers[0].VolumeMounts = nil
	b.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v-disk", DevicePath: "/dev/xvda"}}
	n.ready(a)
	n.ready(b)
	want := map[string]float64{
		"verify_controller_attached_volume success": 2,
		"volume_mount success":                      1,
		"map_volume success":                        1,
	}
	is("at first", want)

	// The claim is read repeatedly without any operation.
	reads := n.api.asked("claim data")
	n.until("another look at the claim", func() bool { return n.api.asked("claim data") > reads })
	is("after a look at the claim", want)

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
	n.until("the second attempt at growing", func() bool { return counted("volume_fs_resize", "success") > 0 })
	want["volume_fs_resize success"], want["volume_fs_resize fail-unknown"] = 1, 1
	is("after its expansion", want)

	n.driver.Next("NodeUnstageVolume", csidriver.Fault{Err: status.Error(codes.Internal, "busy")})
	n.release(a)
	n.until("the end of the device", func() bool { return counted("unmount_device", "success") > 0 })
	n.release(b)
	n.until("the end of the block device", func() bool { return counted("unmap_device", "success") > 0 })
	n.idle()
	want["volume_unmount success"], want["unmap_volume success"] = 1, 1
	want["unmount_device success"], want["unmount_device fail-unknown"], want["unmap_device success"] = 1, 1, 1
	is("in the end", want)
}
