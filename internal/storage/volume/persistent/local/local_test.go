package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/await"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/kit/volumenode"
)

// testNode is a node with this plugin, on real file systems.
type testNode struct {
	*volume.Manager
	t       *testing.T
	root    string
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	lasting *persistent.Volumes
	stop    func()
	tools   mount.Tools

	mu     sync.Mutex // guards claims
	events eventlog.Log
}

func (n *testNode) Claim(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.claims[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
}

func (n *testNode) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return n.volumes[name], nil
}

func (n *testNode) PatchClaimStatus(
	_ context.Context, _, name string, patch []byte,
) (*v1.PersistentVolumeClaim, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, err := json.Marshal(n.claims[name])
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.PersistentVolumeClaim{})
	if err != nil {
		return nil, err
	}
	next := &v1.PersistentVolumeClaim{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	n.claims[name] = next
	return next, nil
}

// eventOf records events of a PersistentVolume.
func (n *testNode) eventOf(pv *v1.PersistentVolume, eventType, reason, message string) {
	n.events.Add("volume "+pv.Name, eventType, reason, message)
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{
		t:       t,
		root:    volumenode.Root(t),
		claims:  map[string]*v1.PersistentVolumeClaim{},
		volumes: map[string]*v1.PersistentVolume{},
	}
	n.start()
	return n
}

// start runs an agent on the existing state.
func (n *testNode) start() {
	guard := mount.NewGuard()
	agent := volumenode.NewAgent(persistent.Config{
		RootDir:     n.root,
		Guard:       guard,
		Events:      &n.events,
		VolumeEvent: n.eventOf,
		API:         n,
		Plugins:     []persistent.Plugin{New(Config{RootDir: n.root, Guard: guard, Events: &n.events, Tools: n.tools})},
	}, volume.Config{MaySwap: mount.MaySwap, StatsPeriod: time.Minute})
	n.Manager, n.lasting = agent.Manager, agent.Persistent
	stop := agent.Start()
	n.stop = sync.OnceFunc(func() {
		if err := stop(); err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(n.stop)
	n.lasting.Settle()
}

func (n *testNode) until(what string, ok func() bool) {
	n.t.Helper()
	await.Until(n.t, what, func() (string, bool) { return fmt.Sprintf("events %q", n.events.Lines()), ok() })
}

func (n *testNode) ready(p *v1.Pod) string {
	n.t.Helper()
	n.Want(p)
	n.until("volumes of "+p.Name+" are ready", func() bool { ok, _ := n.Ready(p.UID); return ok })
	m, err := n.Mounts(n.t.Context(), p, &p.Spec.Containers[0], nil)
	must(n.t, err)
	return m[0].HostPath
}

func (n *testNode) release(p *v1.Pod) {
	n.t.Helper()
	n.Release(pod.RefOf(p))
	n.until("volumes of "+p.Name+" are released", func() bool { done, _ := n.Released(p.UID); return done })
}

func (n *testNode) mounted() []string {
	points, err := mount.At(n.root)
	must(n.t, err)
	for i := range points {
		points[i] = strings.TrimPrefix(points[i], n.root+"/")
	}
	slices.Sort(points)
	return points
}

// volume creates a claim bound to a local volume of the same name.
func (n *testNode) volume(name, path string, change func(*v1.PersistentVolume)) {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)},
		},
	}
	if change != nil {
		change(pv)
	}
	n.volumes[name] = pv
	n.claims[name] = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: pv.Spec.ClaimRef.UID},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: name},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
}

func podWith(name, claim string, gid *int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			SecurityContext: &v1.PodSecurityContext{FSGroup: gid},
			Containers: []v1.Container{
				{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}},
			},
			Volumes: []v1.Volume{
				{
					Name: "data",
					VolumeSource: v1.VolumeSource{
						PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
					},
				},
			},
		},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func group(t *testing.T, path string) int {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return int(st.Gid)
}

func TestDirectory(t *testing.T) {
	parity.ProvesPart(t, 2, "VOL-53")
	parity.ProvesPart(t, 10, "VOL-10")
	parity.ProvesPart(t, 8, "VOL-17")
	parity.ProvesPart(t, 3, "VOL-27")
	n := newTestNode(t)
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(disk, 0o755))
	must(t, os.WriteFile(filepath.Join(disk, "f"), []byte("kept"), 0o600))
	n.volume("pv1", disk, nil)
	a, b := podWith("a", "pv1", ptr.To[int64](3000)), podWith("b", "pv1", ptr.To[int64](4000))
	at := n.ready(a)
	if want := filepath.Join(n.root, "pods/uid-a/volumes/kubernetes.io~local-volume/pv1"); at != want {
		t.Errorf("the volume is at %s, want %s", at, want)
	}
	if got := group(t, filepath.Join(at, "f")); got != 3000 {
		t.Errorf("the file is of group %d, want the pod's", got)
	}
	// A second pod with another fsGroup does not change the group.
	n.ready(b)
	if got := group(t, disk); got != 3000 {
		t.Errorf("the second pod took the volume: its group is %d", got)
	}
	if !n.events.Has(
		"b Warning AlreadyMountedVolume The requested fsGroup is 4000, but the volume pv1 has GID 3000. The volume may " +
			"not be shareable.",
	) {
		t.Errorf("events are %q", n.events.Lines())
	}
	n.Refresh(t.Context())
	if s := n.Stats(a.UID); len(s) != 1 || s[0].Claim != "pv1" || s[0].Capacity == 0 || s[0].Local {
		t.Errorf("stats are %+v", s)
	}
	// The agent restarts; nothing is mounted again.
	before := n.mounted()
	n.stop()
	n.start()
	n.ready(a)
	n.ready(b)
	if got := n.mounted(); !slices.Equal(got, before) || len(got) != 2 {
		t.Errorf("mounts are %v after a restart, want %v", got, before)
	}
	n.release(a)
	n.release(b)
	if got := n.mounted(); len(got) != 0 {
		t.Errorf("still mounted: %v", got)
	}
	if got, err := os.ReadFile(filepath.Join(disk, "f")); err != nil || string(got) != "kept" {
		t.Fatalf("releasing took data: %q, %v", got, err)
	}
}

func TestReadOnlyAndOptions(t *testing.T) {
	n := newTestNode(t)
	dir := t.TempDir()
	n.volume("pv1", dir, func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"noexec", "nodev"} })
	p := podWith("a", "pv1", ptr.To[int64](3000))
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	at := n.ready(p)
	if err := os.WriteFile(filepath.Join(at, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to it: %v, want that it is read-only", err)
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(at, &st))
	if want := int64(unix.ST_RDONLY | unix.ST_NOEXEC | unix.ST_NODEV); st.Flags&want != want {
		t.Errorf("flags of the mount are %x, want %x among them", st.Flags, want)
	}
	if got := group(t, dir); got == 3000 {
		t.Error("the group of a volume was changed that is only read")
	}
	m, err := n.Mounts(t.Context(), p, &p.Spec.Containers[0], nil)
	if err != nil || !m[0].ReadOnly {
		t.Errorf("mount = %+v, %v, want it read-only for the container", m, err)
	}
	n.release(p)

	n.volume("pv2", dir, func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"data=journal"} })
	bad := podWith("b", "pv2", nil)
	n.Want(bad)
	n.until("the option is refused", func() bool {
		return n.events.Has(`MountVolume.SetUp failed for volume "pv2" : bind ` + dir +
			`: option "data=journal" is not supported for bind mounts`)
	})
	n.volume("pv3", filepath.Join(dir, "none"), nil)
	missing := podWith("c", "pv3", nil)
	n.Want(missing)
	n.until("what is missing is named", func() bool {
		return n.events.Has(`c Warning FailedMount MountVolume.NewMounter initialization failed for volume "pv3" : ` +
			fmt.Sprintf("path %q does not exist", filepath.Join(dir, "none")))
	})
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	n.volume("pv4", filepath.Join(dir, "file"), nil)
	file := podWith("d", "pv4", nil)
	n.Want(file)
	n.until("a file is no volume", func() bool {
		return n.events.Has(`d Warning FailedMount MountVolume.NewMounter initialization failed for volume "pv4" : ` +
			"only directory and block device are supported")
	})
	n.release(file)
	n.volume("pv5", filepath.Join(dir, "none"), func(pv *v1.PersistentVolume) {
		pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	})
	device := podWith("e", "pv5", nil)
	c := &device.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	n.Want(device)
	n.until("a device that is missing", func() bool {
		return n.events.Has(`e Warning FailedMapVolume MapVolume.EvalHostSymlinks failed for volume "pv5" : ` +
			fmt.Sprintf("lstat %s: no such file or directory", filepath.Join(dir, "none")))
	})
	n.release(device)
	n.release(bad)
	n.release(missing)
}

// loopDisk returns an empty disk.
func loopDisk(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk.img")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, 16<<20))
	dev, err := mount.AttachLoop(file)
	if errors.Is(err, os.ErrNotExist) {
		need.Skip(t, "this machine has no loop devices", err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := mount.DetachLoop(file); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// onDisk returns the file system of a disk.
func onDisk(t *testing.T, disk string) string {
	t.Helper()
	out, err := exec.Command("blkid", "-p", "-s", "TYPE", "-o", "value", disk).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func TestDisk(t *testing.T) {
	n := newTestNode(t)
	disk := loopDisk(t)
	n.volume("pv1", disk, func(pv *v1.PersistentVolume) { pv.Spec.Local.FSType = ptr.To("ext3") })
	a, b := podWith("a", "pv1", nil), podWith("b", "pv1", nil)
	at := n.ready(a)
	must(t, os.WriteFile(filepath.Join(at, "f"), []byte("kept"), 0o600))
	n.ready(b)
	global := "plugins/kubernetes.io/local-volume/mounts/pv1"
	inPods := []string{"pods/uid-a/volumes/kubernetes.io~local-volume/pv1",
		"pods/uid-b/volumes/kubernetes.io~local-volume/pv1"}
	if got := n.mounted(); !slices.Equal(got, append([]string{global}, inPods...)) &&
		!slices.Equal(got, append(inPods, global)) {
		t.Errorf("mounts are %v", got)
	}
	n.release(a)
	if got := n.mounted(); !slices.Contains(got, global) {
		t.Error("the disk was taken off while a pod has it")
	}
	n.release(b)
	n.until("the disk is taken off after its last pod", func() bool { return len(n.mounted()) == 0 })
	n.until("its directory is gone", func() bool {
		_, err := os.Lstat(filepath.Join(n.root, global))
		return errors.Is(err, os.ErrNotExist)
	})
	if kind := onDisk(t, disk); kind != "ext3" {
		t.Errorf("the empty disk was given %q, want the volume's ext3", kind)
	}
	// The disk is not formatted again.
	at = n.ready(a)
	if got, err := os.ReadFile(filepath.Join(at, "f")); err != nil || string(got) != "kept" {
		t.Errorf("the disk holds %q, %v", got, err)
	}
	// A crash, and then no pod wants it any more.
	n.stop()
	n.start()
	n.release(a)
	n.until("what an earlier agent mounted is taken off", func() bool { return len(n.mounted()) == 0 })
	parity.ProvesPart(t, 3, "VOL-09")
	parity.ProvesPart(t, 2, "VOL-53")
}

// A volume that has expanded is expanded on the node: the file system of a disk at mount and online;
// for directories and block volumes there is nothing to do. The resize program is a stand-in, since
// not every machine can resize.
func TestExpandLocalVolumes(t *testing.T) {
	parity.ProvesPart(t, 5, "VOL-21")
	amount := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	n := newTestNode(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "resize2fs"), []byte("#!/bin/sh\necho \"$@\" >> "+dir+"/calls\n"), 0o755))
	n.stop()
	n.tools = mount.Tools{Path: dir + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	n.start()
	disk := loopDisk(t)
	n.volume("disk", disk, nil)
	n.volume("dir", t.TempDir(), nil)
	n.volume("device", disk, func(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) })
	pods := map[string]*v1.Pod{}
	for name := range n.volumes {
		n.volumes[name].Spec.Capacity, n.claims[name].Status.Capacity = amount("1Gi"), amount("1Gi")
		pods[name] = podWith(name, name, nil)
	}
	c := &pods["device"].Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	calls := ""
	for _, size := range []string{"1Gi", "2Gi", "3Gi"} { // unchanged; online; before the mount
		for name, p := range pods {
			if size == "3Gi" {
				n.release(p)
			}
			n.volumes[name].Spec.Capacity = amount(size)
			n.Want(p)
			n.until(name+" is ready", func() bool { ok, _ := n.Ready(p.UID); return ok })
			ready, err := n.lasting.Kinds()[0].Prepare(t.Context(), volume.Request{
				Place:  volume.PlaceOf(n.root, p.UID, "x", "data", false),
				Pod:    p,
				Volume: &p.Spec.Volumes[0],
			})
			must(t, err)
			if ready.RenewAt.IsZero() {
				t.Errorf("the claim of %s is not read again", name)
			}
			claim, err := n.Claim(t.Context(), "ns", name)
			must(t, err)
			if got := claim.Status.Capacity[v1.ResourceStorage]; got.String() != size {
				t.Errorf("the claim of %s has %s, want %s", name, got.String(), size)
			}
			if expanded := n.events.Has(
				`Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "` +
					name +
					`"`); expanded != (size != "1Gi") {
				t.Errorf("events of %s with %s: %q", name, size, n.events.Lines())
			}
		}
		if size != "1Gi" {
			calls += disk + "\n"
		}
		if logged, err := os.ReadFile(filepath.Join(dir, "calls")); string(logged) != calls {
			t.Errorf("with %s resize2fs was called with %q, %v, want %q", size, logged, err, calls)
		}
	}
	for _, p := range pods {
		n.release(p)
	}
	n.until("nothing is left", func() bool { return len(n.mounted()) == 0 })
}

func TestForeignDiskIsNotFormatted(t *testing.T) {
	n := newTestNode(t)
	disk := loopDisk(t)
	if _, err := (mount.Tools{}).Find("mkfs.ext4"); err != nil {
		need.Skip(t, "this machine has no mkfs.ext4", err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", disk).CombinedOutput(); err != nil {
		t.Fatalf("make a file system: %v: %s", err, out)
	}
	n.volume("pv1", disk, func(pv *v1.PersistentVolume) { pv.Spec.Local.FSType = ptr.To("xfs") })
	p := podWith("a", "pv1", nil)
	n.Want(p)
	foreign := func(disk string) string {
		return fmt.Sprintf(`local: failed to mount device %s at %s (fstype: xfs), error `+
			`failed to mount the volume as "xfs", it already contains ext4`, disk,
			filepath.Join(n.root, "plugins/kubernetes.io/local-volume/mounts/pv1"))
	}
	n.until("the event that names the path", func() bool {
		return n.events.Has(`a Warning FailedMount MountVolume.MountDevice failed for volume "pv1" : ` +
			foreign(disk))
	})
	parity.ProvesPart(t, 10, "VOL-10")
	n.until("the event of the PersistentVolume", func() bool {
		return n.events.Has(`volume pv1 Warning FailedMountOnFilesystemMismatch MountVolume failed for volume "pv1" ` +
			foreign(disk))
	})
	n.release(p)
	if kind := onDisk(t, disk); kind != "ext4" {
		t.Errorf("the disk holds %q", kind)
	}
	n.until("nothing is left", func() bool { return len(n.mounted()) == 0 })
}

func TestLocalBlockVolume(t *testing.T) {
	n := newTestNode(t)
	disk := loopDisk(t)
	n.volume("pv1", disk, func(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) })
	p := podWith("a", "pv1", nil)
	c := &p.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	n.Want(p)
	n.until("the device is ready", func() bool { ok, _ := n.Ready(p.UID); return ok })
	devices, err := n.Devices(p, c)
	if err != nil || len(devices) != 1 || devices[0].ContainerPath != "/dev/data" {
		t.Fatalf("devices = %+v, %v", devices, err)
	}
	if real, err := filepath.EvalSymlinks(devices[0].HostPath); err != nil || real != disk {
		t.Errorf("the device is %s, %v, want %s", real, err, disk)
	}
	n.release(p)
	n.until("nothing is left", func() bool { return len(n.mounted()) == 0 })
	if _, err := os.Lstat(filepath.Join(n.root,
		"plugins/kubernetes.io/local-volume/volumeDevices/pv1")); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}

func TestVolumeGroups(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-108")
	n := newTestNode(t)
	for name, gid := range map[string]string{"pv1": "1234", "pv2": "no number", "pv3": "4321"} {
		n.volume(name, t.TempDir(),
			func(pv *v1.PersistentVolume) { pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": gid} })
		p := podWith(name, name, nil)
		p.Spec.SecurityContext.SupplementalGroups = []int64{4321}
		if got := n.Groups(p); len(got) > 0 {
			t.Errorf("groups are %v before the volume is there", got)
		}
		n.ready(p)
		want := map[string][]int64{"pv1": {1234}}[name] // the pod has 4321 in any case
		if got := n.Groups(p); !slices.Equal(got, want) {
			t.Errorf("groups of a volume with annotation %q are %v, want %v", gid, got, want)
		}
		n.release(p)
	}
}

// TestSubPathDirectoryName: sub-paths are mounted below the name of the PersistentVolume, where
// upstream's agent looks for them, not below the pod's name for the volume.
func TestSubPathDirectoryName(t *testing.T) {
	n := newTestNode(t)
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(disk, 0o755))
	n.volume("pv1", disk, nil)
	p := podWith("a", "pv1", nil)
	p.Spec.Containers[0].VolumeMounts[0].SubPath = "part"
	if got, want := n.ready(p), filepath.Join(n.root, "pods/uid-a/volume-subpaths/pv1/main/0"); got != want {
		t.Errorf("the sub-path is at %s, want %s", got, want)
	}
	n.release(p)
	if got := n.mounted(); len(got) != 0 {
		t.Errorf("still mounted: %v", got)
	}
}

// A format that takes long is not started again by each attempt.
func TestLongFormatIsNotRestarted(t *testing.T) {
	if New(Config{}).cfg.Tools.Alive == nil {
		t.Error("no progress was reported")
	}
}
