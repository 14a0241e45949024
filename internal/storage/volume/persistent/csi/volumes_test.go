package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
	"keelson/test/kit/silence"
)

// The whole life of a volume: in use, attached, staged, published to two pods, and all of it
// undone.
func TestVolumeLifecycle(t *testing.T) {
	parity.Proves(t, "VOL-62")
	parity.ProvesPart(t, 3, "VOL-03")
	parity.ProvesPart(t, 3, "VOL-04")
	parity.ProvesPart(t, 3, "VOL-05")
	parity.ProvesPart(t, 3, "VOL-09")
	parity.ProvesPart(t, 2, "VOL-60")
	parity.ProvesPart(t, 2, "VOL-63")
	parity.ProvesPart(t, 2, "VOL-74")
	parity.ProvesPart(t, 4, "VOL-58")
	parity.ProvesPart(t, 2, "VOL-67")
	n := newTestNode(t, nil)
	id := n.volumeOf("data", func(pv *v1.PersistentVolume) {
		c := pv.Spec.CSI
		c.NodeStageSecretRef = &v1.SecretReference{Namespace: "sec", Name: "stage"}
		c.NodePublishSecretRef = &v1.SecretReference{Namespace: "sec", Name: "publish"}
		pv.Spec.MountOptions = []string{"noatime"}
		c.FSType = "ext4"
	})
	n.api.change(func() {
		n.api.secrets["sec/stage"] = &v1.Secret{Data: map[string][]byte{"user": []byte("s")}}
		n.api.secrets["sec/publish"] = &v1.Secret{Data: map[string][]byte{"user": []byte("p")}}
	})
	a, b := podWith("a", "data"), podWith("b", "data")
	n.Want(a)
	n.until("the volume to be in volumesInUse", func() bool {
		return slices.Contains(n.api.status().VolumesInUse, v1.UniqueVolumeName(id))
	})
	if got := n.driver.Methods(); len(got) > 0 || n.State(a.UID).Ready {
		t.Fatalf("before the volume was attached the driver was called: %v", got)
	}
	n.attachTo("test-data")
	n.ready(a)
	n.ready(b)

	sum := func(of string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(of))) }
	staged := filepath.Join(n.root, "plugins/kubernetes.io/csi", driverName, sum("test-data"))
	if want := "kubernetes.io/csi/" + driverName + "^test-data"; id != want {
		t.Errorf("the volume is called %s, want %s", id, want)
	}
	if asked := n.api.asked("csi-" + sum("test-data"+driverName+"n1")); asked == 0 {
		t.Error("the VolumeAttachment was not read")
	}
	if got := read(t,
		filepath.Join(staged, "vol_data.json")); got != `{"driverName":"`+driverName+`","volumeHandle":"test-data"}` {
		t.Errorf("record of the device: %s", got)
	}
	place := filepath.Join(n.root, "pods/uid-a/volumes/kubernetes.io~csi/pv-data")
	want := `{"attachmentID":"csi-` + sum("test-data"+driverName+"n1") + `","driverName":"` + driverName +
		`","nodeName":"n1","specVolID":"pv-data","volumeHandle":"test-data","volumeLifecycleMode":"Persistent"}`
	if got := read(t, filepath.Join(place, "vol_data.json")); got != want {
		t.Errorf("record of the pod's volume:\n %s\nwant\n %s", got, want)
	}
	if got := n.mounted(a)["v-data"]; got != filepath.Join(place, "mount") {
		t.Errorf("mounted from %s", got)
	}
	write(t, filepath.Join(n.mounted(a)["v-data"], "f"), "hello")
	if got := read(t, filepath.Join(n.mounted(b)["v-data"], "f")); got != "hello" {
		t.Errorf("the other pod reads %q", got)
	}

	st := n.driver.Last("NodeStageVolume").(*csiv1.NodeStageVolumeRequest)
	if st.VolumeId != "test-data" || st.PublishContext["lun"] != "7" || st.Secrets["user"] != "s" ||
		st.VolumeContext["tier"] != "gold" ||
		st.StagingTargetPath != filepath.Join(staged, "globalmount") ||
		st.VolumeCapability.GetMount().FsType != "ext4" ||
		!slices.Equal(st.VolumeCapability.GetMount().MountFlags, []string{"noatime"}) {
		t.Errorf("staged with %v", st)
	}
	pub := n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest)
	if pub.VolumeId != "test-data" || pub.PublishContext["lun"] != "7" || pub.Secrets["user"] != "p" ||
		pub.VolumeContext["tier"] != "gold" ||
		pub.StagingTargetPath != st.StagingTargetPath || pub.Readonly ||
		pub.VolumeContext["csi.storage.k8s.io/pod.name"] != "" {
		t.Errorf("published with %v", pub)
	}

	n.release(a)
	if got := n.lasting.InUse(); !slices.Equal(got, []v1.UniqueVolumeName{v1.UniqueVolumeName(id)}) {
		t.Errorf("in use with one pod left: %v", got)
	}
	n.release(b)
	n.idle()
	wantCalls := []string{"NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"NodeUnpublishVolume", "NodeUnstageVolume"}
	if got := n.driver.Methods(); !slices.Equal(got, wantCalls) {
		t.Errorf("calls: %v, want %v", got, wantCalls)
	}
	if got := read(t, filepath.Join(n.driver.Data("test-data"), "f")); got != "hello" {
		t.Errorf("the data is %q", got)
	}
}

// The node status shows the volume as attached; the driver is called when the VolumeAttachment does
// as well.
func TestAttachmentIsVerified(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-03")
	n := newTestNode(t, nil)
	n.volumeOf("data", nil)
	n.api.change(func() {
		n.api.node.VolumesAttached = []v1.AttachedVolume{{Name: "kubernetes.io/csi/test.csi.keelson.example^test-data"}}
	})
	name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte("test-datatest.csi.keelson.examplen1")))
	shows := func(deleted bool, status storagev1.VolumeAttachmentStatus) {
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: status}
		if deleted {
			a.DeletionTimestamp = ptr.To(metav1.Now())
		}
		n.api.change(func() { n.api.attach[name] = a })
	}
	p := podWith("a", "data")
	n.Want(p)
	says := func(cause string) {
		t.Helper()
		want := `a Warning FailedMount MountVolume.WaitForAttach failed for volume "pv-data" : ` + cause
		n.until(want, func() bool { return slices.Contains(n.events.Lines(), want) })
		if got := n.driver.Methods(); len(got) > 0 || n.State(p.UID).Ready {
			t.Fatalf("the driver was called: %v", got)
		}
	}
	says("volume test-data has GET error for volume attachment " + name + `: volumeattachments "` + name +
		`" not found`)
	shows(false, storagev1.VolumeAttachmentStatus{})
	says("volume test-data is not attached for volume attachment " + name)
	shows(false, storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no such disk"}})
	says("no such disk")
	shows(true, storagev1.VolumeAttachmentStatus{Attached: true})
	says("volume attachment is being deleted")
	shows(false, storagev1.VolumeAttachmentStatus{Attached: true})
	n.until("readiness", func() bool { return n.State(p.UID).Ready })
	n.release(p)
	n.idle()
}

// The event for a waiting pod has upstream's text.
func TestWaitingEvent(t *testing.T) {
	parity.Proves(t, "VOL-59")
	parity.ProvesPart(t, 10, "VOL-10")
	n := newTestNode(t, nil)
	n.driverObject(nil)
	p := podWith("a", "none")
	n.Want(p)
	n.until("an event", func() bool {
		return n.events.Has(
			`Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[v-none], unattached volumes=[], ` +
				`failed to process volumes=[v-none]: ` +
				`error processing PVC ns/none: failed to fetch PVC from API server: persistentvolumeclaims "none" not found`)
	})
	n.volumeOf("none", nil)
	n.api.change(func() { n.api.claims["none"].Status.Phase = v1.ClaimPending })
	n.until("an event", func() bool { return n.events.Has("error processing PVC ns/none: PVC is not bound") })
	n.api.change(func() { n.api.claims["none"].Status.Phase = v1.ClaimBound })
	n.until("readiness", func() bool { return n.State(p.UID).Ready })
	n.release(p)
	n.idle()

	// A missing driver is waited for.
	must(t, n.drivers.Deregister(t.Context(), driverName, n.driver.Socket()))
	q := podWith("b", "none")
	n.Want(q)
	n.until("an event", func() bool {
		return n.events.Has(
			`Warning FailedMount MountVolume.MountDevice failed for volume "pv-none" : kubernetes.io/csi: ` +
				`attacher.MountDevice failed to create newCsiDriverClient: driver name ` + driverName +
				` not found in the list of registered CSI drivers`)
	})
	n.until("a pause of eight seconds", func() bool { return time.Until(n.State(q.UID).RetryAt) > 7*time.Second })
	n.drivers.OnRegister(n.DriverRegistered)
	began := time.Now()
	must(t, n.drivers.Register(t.Context(), driverName, n.driver.Socket(), []string{"1.0.0"}))
	n.until("readiness", func() bool { return n.State(q.UID).Ready })
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("ready %v after the driver registered", took)
	}
	n.release(q)
	n.idle()
}

// Volumes of drivers that need attaching require the attach/detach controller; on a node configured
// without it they fail.
func TestControllerAttachDetachDisabled(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	parity.ProvesPart(t, 10, "VOL-10")
	parity.ProvesPart(t, 2, "VOL-24")
	n := newTestNode(t, nil)
	n.stop()
	n.alone = true
	n.start()
	n.volumeOf("data", nil)
	p := podWith("a", "data")
	n.Want(p)
	n.until("a failure", func() bool {
		return n.events.Has(
			`Warning FailedAttachVolume AttachVolume.Attach failed for volume "pv-data" : attaching volumes from the kubelet ` +
				`is not supported`,
		)
	})
	if got := n.driver.Methods(); len(got) > 0 {
		t.Errorf("the driver was called: %v", got)
	}
	// Volumes that need no attaching are not affected.
	n.driverObject(nil)
	n.ready(p)
	n.release(p)
	n.idle()
}

func TestUnusableClaims(t *testing.T) {
	n := newTestNode(t, nil)
	n.driverObject(nil)
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolumeClaim, *v1.PersistentVolume, *v1.Pod)
		want   string
	}{
		"deleted": {func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume, _ *v1.Pod) {
			c.DeletionTimestamp = ptr.To(metav1.Now())
		}, "PVC is being deleted"},
		"other": {
			func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, _ *v1.Pod) { pv.Spec.ClaimRef.UID = "old" },
			`pv.Spec.ClaimRef.UID old does not point to claim.UID claim-other`,
		},
		"block": {func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, _ *v1.Pod) {
			pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
		}, "volume v-block has volumeMode Block, but is specified in volumeMounts"},
		"plain": {func(_ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume, p *v1.Pod) {
			p.Spec.Containers[0].VolumeMounts, p.Spec.Containers[0].VolumeDevices = nil, []v1.VolumeDevice{
				{Name: "v-plain", DevicePath: "/dev/x"},
			}
		}, "volume v-plain has volumeMode Filesystem, but is specified in volumeDevices"},
		"flex": {func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, _ *v1.Pod) {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
				FlexVolume: &v1.FlexPersistentVolumeSource{Driver: "example.com/x"},
			}
		}, "no volume plugin matched"},
	} {
		t.Run(name, func(t *testing.T) {
			n.volumeOf(name, nil)
			p := podWith("p-"+name, name)
			n.api.change(func() { c.change(n.api.claims[name], n.api.volumes["pv-"+name], p) })
			n.Want(p)
			n.until(c.want, func() bool { return n.events.Has(c.want) })
			n.release(p)
		})
	}
	if got := n.driver.Methods(); len(got) > 0 {
		t.Errorf("the driver was called: %v", got)
	}
	n.idle()
}

// A step with an unknown outcome is undone at the end; one that failed without effect is not.
func TestUnknownOutcomes(t *testing.T) {
	parity.Proves(t, "VOL-73")
	for _, c := range []struct {
		name   string
		method string
		code   codes.Code
		want   []string
	}{
		{"staging refused", "NodeStageVolume", codes.InvalidArgument, nil},
		{"staging open", "NodeStageVolume", codes.DeadlineExceeded, []string{"NodeUnstageVolume"}},
		{"staging under way", "NodeStageVolume", codes.Aborted, []string{"NodeUnstageVolume"}},
		{"staging called off", "NodeStageVolume", codes.Canceled, []string{"NodeUnstageVolume"}},
		{"staging short of something", "NodeStageVolume", codes.ResourceExhausted, []string{"NodeUnstageVolume"}},
		{"publishing refused", "NodePublishVolume", codes.Internal, []string{"NodeUnstageVolume"}},
		{"publishing open", "NodePublishVolume", codes.Unavailable, []string{"NodeUnpublishVolume", "NodeUnstageVolume"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTestNode(t, nil)
			n.driverObject(nil)
			n.volumeOf("data", nil)
			n.driver.Always(c.method, csidriver.Fault{
				Err:   status.Error(c.code, "on request"),
				After: persistent.IsUnknown(markUnknown(status.Error(c.code, ""))),
			})
			p := podWith("a", "data")
			n.Want(p)
			// A call under way at the release would be cancelled, with an unknown outcome.
			failure := fmt.Sprintf(`for volume "pv-data" : rpc error: code = %s desc = on request`, c.code)
			n.until("two attempts that have failed", func() bool {
				failed := slices.DeleteFunc(n.events.Lines(),
					func(e string) bool { return !strings.Contains(e, failure) })
				return len(failed) >= 2
			})
			n.release(p)
			n.idle()
			var got []string
			for _, m := range n.driver.Methods() {
				if strings.HasPrefix(m, "NodeUn") && !slices.Contains(got, m) {
					got = append(got, m)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("undone by %v, want %v", got, c.want)
			}
		})
	}
}

// A driver fails to stage a volume but has mounted it. The volume is in use until that is undone.
func TestStageFailsButMounts(t *testing.T) {
	n := newTestNode(t, nil)
	id := v1.UniqueVolumeName(n.volumeOf("data", nil))
	n.attachTo("test-data")
	// A slow machine stages more than once before the pod is released.
	refused := csidriver.Fault{Err: status.Error(codes.Internal, "on request"), After: true}
	n.driver.Next("NodeStageVolume", slices.Repeat([]csidriver.Fault{refused}, 20)...)
	n.driver.Next("NodeUnstageVolume", csidriver.Fault{Err: status.Error(codes.Internal, "busy")},
		csidriver.Fault{Err: status.Error(codes.Internal, "busy")})
	p := podWith("a", "data")
	n.Want(p)
	n.until("the refusal", func() bool { return n.events.Has("on request") })
	n.release(p)
	n.until("two attempts at undoing it", func() bool { return n.driver.Count("NodeUnstageVolume") == 2 })
	if !slices.Contains(n.lasting.InUse(), id) {
		t.Error("not in use although it is mounted")
	}
	n.idle()
}

// While unstaging fails, both the record and the entry in volumesInUse stay.
func TestUnstageRetries(t *testing.T) {
	parity.ProvesPart(t, 2, "VOL-74")
	n := newTestNode(t, nil)
	id := v1.UniqueVolumeName(n.volumeOf("data", nil))
	n.attachTo("test-data")
	p := podWith("a", "data")
	n.ready(p)
	n.driver.Next("NodeUnpublishVolume", csidriver.Fault{Err: status.Error(codes.Internal, "busy")})
	n.driver.Next("NodeUnstageVolume", csidriver.Fault{Err: status.Error(codes.Internal, "busy")},
		csidriver.Fault{Err: status.Error(codes.Internal, "busy")})
	n.Release(pod.RefOf(p))
	n.until("first failure", func() bool { return n.driver.Count("NodeUnpublishVolume") == 1 })
	if read(t, filepath.Join(n.root, "pods/uid-a/volumes/kubernetes.io~csi/pv-data/vol_data.json")) == "" {
		t.Error("the record is gone before the volume")
	}
	n.until("second failure", func() bool { return n.driver.Count("NodeUnstageVolume") == 2 })
	if !slices.Contains(n.lasting.InUse(), id) {
		t.Error("not in use although it is staged")
	}
	if _, err := readRecord(paths{n.root}.device(driverName, "test-data")); err != nil {
		t.Errorf("the record is gone before the device: %v", err)
	}
	n.until("release", func() bool { done, _ := n.Released(p.UID); return done })
	n.idle()
}

func TestReadWriteOncePod(t *testing.T) {
	parity.Proves(t, "VOL-69")
	for _, multi := range []bool{false, true} {
		n := newTestNode(t, func(c *csidriver.Config) { c.MultiWriter = multi })
		n.driverObject(nil)
		n.volumeOf("one", func(pv *v1.PersistentVolume) {
			pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		})
		n.volumeOf("many", nil)
		a, b := podWith("a", "one"), podWith("b", "one")
		n.ready(a)
		n.Want(b)
		n.until("refusal", func() bool {
			return n.events.Has(
				`MountVolume.SetUp failed for volume "pv-one" : volume uses the ReadWriteOncePod access mode and is already in ` +
					`use by another pod`,
			)
		})
		mode := func() csiv1.VolumeCapability_AccessMode_Mode {
			return n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest).VolumeCapability.AccessMode.Mode
		}
		want := csiv1.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		if multi {
			want = csiv1.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		if mode() != want {
			t.Errorf("ReadWriteOncePod is sent as %v, want %v", mode(), want)
		}
		n.release(a)
		n.until("the second pod", func() bool { return n.State(b.UID).Ready })
		n.release(b)
		c := podWith("c", "many")
		n.ready(c)
		if multi {
			want = csiv1.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		if mode() != want {
			t.Errorf("ReadWriteOnce is sent as %v, want %v", mode(), want)
		}
		n.release(c)
		n.idle()
	}
}

// A driver gets the pod info that its CSIDriver object requests, and is called again with
// requiresRepublish.
func TestCSIDriverSettings(t *testing.T) {
	parity.Proves(t, "VOL-64", "VOL-23")
	parity.ProvesPart(t, 2, "VOL-63")
	parity.ProvesPart(t, 2, "VOL-65")
	n := newTestNode(t, nil)
	n.stop()
	n.recheck = 50 * time.Millisecond
	n.start()
	n.driverObject(func(s *storagev1.CSIDriverSpec) {
		s.PodInfoOnMount, s.RequiresRepublish = ptr.To(true), ptr.To(true)
		s.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}, {Audience: ""}}
	})
	n.volumeOf("data", nil)
	n.attachTo("test-data") // a VolumeAttachment although the driver has attachRequired false
	p := podWith("a", "data")
	n.ready(p)
	got := n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest)
	staged := n.driver.Last("NodeStageVolume").(*csiv1.NodeStageVolumeRequest)
	if len(got.PublishContext)+len(staged.PublishContext) > 0 {
		t.Errorf("publish context without attaching: %v, %v", staged.PublishContext, got.PublishContext)
	}
	for k, want := range map[string]string{
		"tier":                                   "gold",
		"csi.storage.k8s.io/pod.name":            "a",
		"csi.storage.k8s.io/pod.namespace":       "ns",
		"csi.storage.k8s.io/pod.uid":             "uid-a",
		"csi.storage.k8s.io/serviceAccount.name": "sa",
		"csi.storage.k8s.io/ephemeral":           "false",
		"csi.storage.k8s.io/serviceAccount.tokens": `{"":{"token":"token-a-",` +
			`"expirationTimestamp":"2030-01-01T00:00:00Z"},"vault":{"token":"token-a-vault",` +
			`"expirationTimestamp":"2030-01-01T00:00:00Z"}}`,
	} {
		if got.VolumeContext[k] != want {
			t.Errorf("%s is %q, want %q", k, got.VolumeContext[k], want)
		}
	}
	if len(got.Secrets) > 0 {
		t.Errorf("secrets: %v", got.Secrets)
	}
	n.driverObject(func(s *storagev1.CSIDriverSpec) {
		s.RequiresRepublish, s.ServiceAccountTokenInSecrets = ptr.To(true), ptr.To(true)
		s.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	})
	n.driver.Forget()
	n.driver.Always("NodePublishVolume", csidriver.Fault{Err: status.Error(codes.PermissionDenied, "not now")})
	// The manager has a minimum time between refreshes; Again starts the next attempt.
	n.until("another call", func() bool { n.Want(p.DeepCopy()); return n.driver.Count("NodePublishVolume") >= 1 })
	got = n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest)
	const tokens = "csi.storage.k8s.io/serviceAccount.tokens"
	if _, shown := got.VolumeContext[tokens]; shown ||
		got.Secrets[tokens] != `{"vault":{"token":"token-a-vault","expirationTimestamp":"2030-01-01T00:00:00Z"}}` ||
		got.VolumeContext["csi.storage.k8s.io/pod.name"] != "" {
		t.Errorf("called again with %v", got)
	}
	if !n.State(p.UID).Ready || n.driver.Count("NodeUnpublishVolume") > 0 {
		t.Error("a repeat that failed took the volume away")
	}
	if on, err := mount.IsPoint(n.mounted(p)["v-data"]); !on || err != nil {
		t.Errorf("the volume is not mounted any more: %v", err)
	}
	n.driver.Always("NodePublishVolume", csidriver.Fault{})
	n.release(p)
	n.idle()
	if len(n.api.status().VolumesInUse) > 0 {
		t.Error("a volume that is not attached is in volumesInUse")
	}
}

func TestInlineVolumes(t *testing.T) {
	parity.Proves(t, "VOL-66")
	n := newTestNode(t, nil)
	p := podWith("a")
	p.Spec.Volumes = []v1.Volume{{
		Name: "scratch",
		VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
			Driver:               driverName,
			ReadOnly:             ptr.To(true),
			VolumeAttributes:     map[string]string{"k": "v"},
			NodePublishSecretRef: &v1.LocalObjectReference{Name: "mine"},
		}},
	}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/s"}}
	n.api.change(func() { n.api.secrets["ns/mine"] = &v1.Secret{Data: map[string][]byte{"a": []byte("b")}} })
	n.Want(p)
	n.until("refusal", func() bool {
		return n.events.Has(`MountVolume.SetUp failed for volume "scratch" : kubernetes.io/csi: ` +
			`mounter.SetupAt failed to check volume lifecycle mode: ` +
			`volume mode "Ephemeral" not supported by driver ` + driverName + ` (no CSIDriver object)`)
	})
	n.driverObject(func(s *storagev1.CSIDriverSpec) {
		s.AttachRequired, s.PodInfoOnMount = nil, ptr.To(true)
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	})
	n.until("readiness", func() bool { return n.State(p.UID).Ready })
	got := n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest)
	if got.VolumeId != fmt.Sprintf("csi-%x", sha256.Sum256([]byte("uid-ascratch"))) || !got.Readonly ||
		got.StagingTargetPath != "" || got.Secrets["a"] != "b" || got.VolumeContext["k"] != "v" ||
		got.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true" || got.PublishContext != nil {
		t.Errorf("published with %v", got)
	}
	n.restart()
	n.release(p)
	n.idle()
	if got, want := n.driver.Methods(), []string{"NodePublishVolume", "NodeUnpublishVolume"}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
}

func TestFSGroupPolicies(t *testing.T) {
	parity.Proves(t, "VOL-68")
	parity.ProvesPart(t, 8, "VOL-17")
	type spec = storagev1.CSIDriverSpec
	for name, c := range map[string]struct {
		policy *storagev1.FSGroupPolicy
		fsType string
		mode   v1.PersistentVolumeAccessMode
		driver bool // the driver applies it
		want   bool
	}{
		"by default a file system of one node": {nil, "ext4", v1.ReadWriteOnce, false, true},
		"by default one pod's":                 {nil, "ext4", v1.ReadWriteOncePod, false, true},
		"by default not without a file system": {nil, "", v1.ReadWriteOnce, false, false},
		"by default not one of many nodes":     {nil, "ext4", v1.ReadWriteMany, false, false},
		"any for File": {
			ptr.To(storagev1.FileFSGroupPolicy),
			"",
			v1.ReadWriteMany,
			false,
			true,
		},
		"none for None": {ptr.To(storagev1.NoneFSGroupPolicy), "ext4", v1.ReadWriteOnce, false, false},
		"not if the driver applies the fsGroup": {
			ptr.To(storagev1.FileFSGroupPolicy),
			"ext4",
			v1.ReadWriteOnce,
			true,
			false,
		},
		"as by default for ReadWriteOnceWithFSType": {
			ptr.To(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
			"ext4",
			v1.ReadWriteOnce,
			false,
			true,
		},
		"also not for ReadWriteOnceWithFSType, many": {
			ptr.To(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
			"ext4",
			v1.ReadOnlyMany,
			false,
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, func(cfg *csidriver.Config) { cfg.MountGroup = c.driver })
			n.driverObject(func(s *spec) { s.FSGroupPolicy = c.policy })
			n.volumeOf("data", func(pv *v1.PersistentVolume) {
				pv.Spec.CSI.FSType, pv.Spec.AccessModes = c.fsType, []v1.PersistentVolumeAccessMode{c.mode}
			})
			p := podWith("a", "data")
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(4321))}
			n.ready(p)
			has, err := mount.HasGroup(n.mounted(p)["v-data"], 4321, false)
			if err != nil || has != c.want {
				t.Errorf("the group has the volume: %v, %v, want %v", has, err, c.want)
			}
			reported := n.driver.Last(
				"NodePublishVolume").(*csiv1.NodePublishVolumeRequest).VolumeCapability.GetMount().VolumeMountGroup
			if (reported == "4321") != c.driver || !c.driver && reported != "" {
				t.Errorf("the driver got the group %q", reported)
			}
			n.release(p)
			n.idle()
		})
	}
}

// Every driver call has the same timeout, as a gRPC deadline.
func TestCallTimeout(t *testing.T) {
	parity.ProvesPart(t, 2, "VOL-61")
	if callLimit != 2*time.Minute {
		t.Errorf("a call may take %v", callLimit)
	}
	n := newTestNode(t, nil)
	n.driverObject(nil)
	n.volumeOf("data",
		func(pv *v1.PersistentVolume) { pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("3Gi") })
	n.api.change(func() {
		n.api.claims["data"].Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	})
	p := podWith("a", "data")
	n.ready(p)
	_, err := n.measure(p)
	must(t, err)
	n.release(p)
	n.idle()
	seen := map[string]bool{}
	for _, c := range n.driver.Calls() {
		seen[c.Method] = true
		if c.Limit > 2*time.Minute || c.Limit < time.Minute {
			t.Errorf("%s was given %v", c.Method, c.Limit)
		}
	}
	for _, m := range []string{"NodeStageVolume", "NodeExpandVolume", "NodePublishVolume", "NodeGetVolumeStats",
		"NodeUnpublishVolume", "NodeUnstageVolume"} {
		if !seen[m] {
			t.Errorf("%s was not called", m)
		}
	}
}

// A driver that hangs only delays its own volumes.
func TestHungDriver(t *testing.T) {
	n := newTestNode(t, nil)
	n.driverObject(nil)
	n.volumeOf("slow", nil)
	n.volumeOf("quick", nil)
	hang := make(chan struct{})
	n.driver.Next("NodeStageVolume", csidriver.Fault{Hang: hang})
	slow, other, quick := podWith("slow", "slow"), podWith("other", "slow"), podWith("quick", "quick")
	n.Want(slow)
	n.until("the call that hangs", func() bool { return n.driver.Count("NodeStageVolume") == 1 })
	n.Want(other)
	n.ready(quick)
	if n.State(slow.UID).Ready || n.State(other.UID).Ready || n.driver.Count("NodeStageVolume") != 2 {
		t.Errorf("the volume that hangs was called again: %v", n.driver.Methods())
	}
	close(hang)
	n.ready(slow)
	n.ready(other)
	for _, p := range []*v1.Pod{slow, other, quick} {
		n.release(p)
	}
	n.idle()
}

// The agent restarts between any two steps, and upstream's agent may have run before: the same
// records lead to the same result.
func TestReconstruction(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-04")
	parity.ProvesPart(t, 4, "VOL-06")
	n := newTestNode(t, nil)
	id := v1.UniqueVolumeName(n.volumeOf("data", nil))
	n.attachTo("test-data")
	p := podWith("a", "data")
	n.ready(p)
	write(t, filepath.Join(n.mounted(p)["v-data"], "f"), "kept")

	// The pod is still wanted: its volume is in use from the start.
	n.restart()
	if got := n.lasting.InUse(); !slices.Equal(got, []v1.UniqueVolumeName{id}) {
		t.Fatalf("in use after the restart: %v", got)
	}
	n.ready(p)
	if got := read(t, filepath.Join(n.mounted(p)["v-data"], "f")); got != "kept" {
		t.Errorf("the data reads %q", got)
	}

	// The pod was deleted while the agent was down.
	n.restart()
	n.release(p)
	n.idle()

	// Upstream staged it for a pod that is gone, with this record only.
	dir := paths{n.root}.device(driverName, "test-data")
	must(t, os.MkdirAll(filepath.Join(dir, globalMount), 0o750))
	write(t, filepath.Join(dir, "vol_data.json"), `{"driverName":"`+driverName+`","volumeHandle":"test-data"}`)
	must(t, mountBind(n.driver.Data("test-data"), filepath.Join(dir, globalMount)))
	n.restart()
	n.idle()

	// And one that it had published.
	place := filepath.Join(n.root, "pods/uid-z/volumes/kubernetes.io~csi/pv-data")
	must(t, os.MkdirAll(filepath.Join(place, "mount"), 0o750))
	write(t, filepath.Join(place, "vol_data.json"),
		`{"attachmentID":"csi-x","driverName":"`+driverName+
			`","nodeName":"n1","specVolID":"pv-data","volumeHandle":"test-data","volumeLifecycleMode":"Persistent"}`)
	must(t, mountBind(n.driver.Data("test-data"), filepath.Join(place, "mount")))
	n.restart()
	if got := n.lasting.InUse(); !slices.Equal(got, []v1.UniqueVolumeName{id}) {
		t.Fatalf("in use by a pod of upstream's: %v", got)
	}
	z := podWith("z")
	n.release(z)
	n.idle()
	if got := read(t, filepath.Join(n.driver.Data("test-data"), "f")); got != "kept" {
		t.Errorf("the data reads %q", got)
	}
}

// If a driver leaves a mount, the directory and the data behind it are kept.
func TestMountedDirectoriesAreNotRemoved(t *testing.T) {
	n := newTestNode(t, nil)
	n.driverObject(nil)
	n.volumeOf("data", nil)
	p := podWith("a", "data")
	n.ready(p)
	target := n.mounted(p)["v-data"]
	write(t, filepath.Join(target, "f"), "precious")
	// The driver reports success without unmounting.
	must(t, mountBind(n.driver.Data("test-data"), target))
	n.driver.Observe(func(method string, done bool) {
		if method == "NodeUnpublishVolume" && done && n.driver.Count(method) == 1 {
			_ = os.Mkdir(target, 0o750)
			_ = mountBind(n.driver.Data("test-data"), target)
		}
	})
	n.Release(pod.RefOf(p))
	n.until("a failure", func() bool { _, err := n.Released(p.UID); return errors.Is(err, mount.ErrMounted) })
	if err := n.RemoveDir(t.Context(), p.UID); err == nil {
		t.Error("the pod's directory was removed")
	}
	n.until("release", func() bool { done, _ := n.Released(p.UID); return done })
	n.idle()
	if got := read(t, filepath.Join(n.driver.Data("test-data"), "f")); got != "precious" {
		t.Errorf("the data reads %q", got)
	}
}

func TestDriverWithoutStaging(t *testing.T) {
	n := newTestNode(t, func(c *csidriver.Config) { c.NoStage = true })
	id := v1.UniqueVolumeName(n.volumeOf("data", nil))
	n.attachTo("test-data")
	p := podWith("a", "data")
	n.ready(p)
	n.restart()
	if !slices.Contains(n.lasting.InUse(), id) {
		t.Error("not in use after a restart")
	}
	n.release(p)
	n.idle()
	if got, want := n.driver.Methods(), []string{"NodePublishVolume", "NodeUnpublishVolume"}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	if pub := n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest); pub.StagingTargetPath != "" {
		t.Errorf("published from %s", pub.StagingTargetPath)
	}
}

// A staged volume hangs when the next agent starts. The driver is called nonetheless, and the pod
// can terminate.
func TestHangingStagedVolume(t *testing.T) {
	n := newTestNode(t, nil)
	n.driverObject(nil)
	n.volumeOf("data", nil)
	p := podWith("a", "data")
	n.ready(p)
	n.stop()
	n.driver.Always("NodeStageVolume", csidriver.Fault{Err: status.Error(codes.Unavailable, "no server")})
	n.driver.Forget()
	wake := silence.Mount(t, filepath.Join(paths{n.root}.device(driverName, "test-data"), globalMount))
	late := time.AfterFunc(90*time.Second, func() { // else the test would hang with it
		t.Error("the file system was waited for")
		wake()
	})
	n.start()
	n.Want(p)
	n.until("a call to the driver", func() bool { return n.driver.Count("NodeStageVolume") > 0 })
	n.release(p)
	late.Stop()
	wake()
	n.idle()
}
