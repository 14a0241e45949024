package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/await"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/need"
	"keelson/test/kit/volumenode"
)

const (
	driverName = "test.csi.keelson.example"
	nodeName   = "n1"
)

// testAPI is the API server: objects, and the node status with the controllers' part.
type testAPI struct {
	mu      sync.Mutex
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	secrets map[string]*v1.Secret
	drivers map[string]*storagev1.CSIDriver
	attach  map[string]*storagev1.VolumeAttachment
	node    v1.NodeStatus
	patches []string
	looks   map[string]int
}

func newTestAPI() *testAPI {
	return &testAPI{
		claims:  map[string]*v1.PersistentVolumeClaim{},
		volumes: map[string]*v1.PersistentVolume{},
		secrets: map[string]*v1.Secret{},
		drivers: map[string]*storagev1.CSIDriver{},
		attach:  map[string]*storagev1.VolumeAttachment{},
		looks:   map[string]int{},
	}
}

func get[T any](a *testAPI, m map[string]T, resource, name string) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := m[name]; ok {
		return o, nil
	}
	var none T
	return none, apierrors.NewNotFound(v1.Resource(resource), name)
}

func (a *testAPI) Claim(_ context.Context, ns, name string) (*v1.PersistentVolumeClaim, error) {
	a.mu.Lock()
	a.looks["claim "+name]++
	a.mu.Unlock()
	return get(a, a.claims, "persistentvolumeclaims", name)
}

func (a *testAPI) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return get(a, a.volumes, "persistentvolumes", name)
}

func (a *testAPI) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	a.mu.Lock()
	a.looks[name]++
	a.mu.Unlock()
	return get(a, a.attach, "volumeattachments", name)
}

// asked returns how often an attachment, or "claim " with its name, was read.
func (a *testAPI) asked(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.looks[name]
}

func (a *testAPI) Secret(_ context.Context, ns, name string) (*v1.Secret, error) {
	return get(a, a.secrets, "secrets", ns+"/"+name)
}

func (a *testAPI) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drivers[name], nil
}

func (a *testAPI) PatchClaimStatus(
	_ context.Context, ns, name string, patch []byte,
) (*v1.PersistentVolumeClaim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.patches = append(a.patches, string(patch))
	var next v1.PersistentVolumeClaim
	if err := applyPatch(a.claims[name], patch, &next); err != nil {
		return nil, err
	}
	a.claims[name] = &next
	return &next, nil
}

func applyPatch(old *v1.PersistentVolumeClaim, patch []byte, into *v1.PersistentVolumeClaim) error {
	before, err := json.Marshal(old)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	return json.Unmarshal(after, into)
}

func (a *testAPI) status() v1.NodeStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.node.DeepCopy()
}

func (a *testAPI) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

type testTokens struct{}

func (testTokens) Expiring(
	_ context.Context, p *v1.Pod, audiences []string, seconds *int64,
) (string, time.Time, error) {
	return "token-" + p.Name + "-" + strings.Join(audiences, "+"), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), nil
}
func (testTokens) Forget(types.UID) {}

// testNode is a node with volumes of a real CSI driver process.
type testNode struct {
	*volume.Manager
	t       testing.TB
	root    string
	api     *testAPI
	driver  *csidriver.Driver
	drivers *Drivers
	lasting *persistent.Volumes
	events  *eventlog.Log
	recheck time.Duration
	alone   bool              // there is no attach/detach controller
	health  bool              // health reporting of drivers is enabled
	observe Observer          // observer of driver calls; may be nil
	labels  persistent.Labels // nil: SELinux is disabled
	all     bool              // all volumes are mounted with labels if possible
	// hasLabels reports whether the file system of a mount supports labels; nil: the kernel is
	// asked.
	hasLabels func(path string) (bool, error)
	// exhausted counts calls of Config.Exhausted.
	exhausted atomic.Int64
	looked    map[types.UID]int // by pod, with the api's lock
	stop      func()
}

// newTestNode starts a node. Remaining mounts fail the test.
func newTestNode(t testing.TB, change func(*csidriver.Config)) *testNode {
	t.Helper()
	need.Root(t, "mounting")
	dir, err := os.MkdirTemp("", "csi") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	cfg := csidriver.Config{Name: driverName, Dir: filepath.Join(dir, "driver"), Node: "id-of-n1"}
	if change != nil {
		change(&cfg)
	}
	n := &testNode{
		t:       t,
		root:    filepath.Join(dir, "root"),
		api:     newTestAPI(),
		driver:  csidriver.New(cfg),
		events:  &eventlog.Log{},
		recheck: time.Hour,
	}
	for _, d := range []string{n.root, cfg.Dir} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.stop != nil {
			n.stop()
		}
		n.driver.Stop()
		points, err := mount.At(dir)
		if err != nil || len(points) > 0 {
			if !t.Failed() {
				t.Errorf("left mounted: %v, %v", points, err)
			}
			for _, p := range points {
				_ = mount.DetachLoop(p)
				if err := mount.Unmount(p); err != nil {
					t.Error(err)
				}
			}
		}
		if err := mount.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	})
	n.start()
	return n
}

// start starts an agent on the existing state.
func (n *testNode) start() {
	n.t.Helper()
	if err := n.open(slog.New(slog.NewTextHandler(testWriter{n.t},
		&slog.HandlerOptions{Level: slog.LevelWarn}))); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) open(log *slog.Logger) error {
	guard, hasLabels := mount.NewGuard(), n.hasLabels
	if hasLabels == nil {
		hasLabels = mount.HasLabels
	}
	n.drivers = NewDrivers(nil, n.observe, log)
	n.api.change(func() { n.looked = map[types.UID]int{} })
	if err := n.drivers.Register(context.Background(), driverName, n.driver.Socket(), []string{"1.0.0"}); err != nil {
		return err
	}
	plugin := New(Config{
		RootDir:   n.root,
		Health:    n.health,
		Node:      nodeName,
		Drivers:   n.drivers,
		API:       n.api,
		Tokens:    testTokens{},
		Guard:     guard,
		Sharing:   volume.Ownership{Guard: guard, Events: n.events},
		HasLabels: hasLabels,
		Republish: n.recheck,
		Log:       log,
		InUse:     func() []v1.UniqueVolumeName { return n.api.status().VolumesInUse },
		Exhausted: func(string) { n.exhausted.Add(1) },
	})
	agent := volumenode.NewAgent(persistent.Config{
		RootDir: n.root,
		Plugins: []persistent.Plugin{plugin},
		API:     n.api,
		Guard:   guard,
		Events:  n.events,
		ClaimEvent: func(c *v1.PersistentVolumeClaim, eventType, reason, message string) {
			n.events.Add("claim "+c.Name, eventType, reason, message)
		},
		Node:     n.api.status,
		Attach:   !n.alone,
		Labels:   n.labels,
		LabelAll: n.all,
		Recheck:  n.recheck,
		Log:      log,
		OnInUse:  n.report,
		Count: func(plugin string, migrated bool, operation string, took time.Duration, err error) {
			n.Count(plugin, migrated, operation, took, err)
		},
		Again: func(uid types.UID) {
			n.api.change(func() { n.looked[uid]++ })
			n.Again(uid)
		},
	}, volume.Config{RecursiveReadOnly: func(*v1.Pod) bool { return true }})
	n.Manager, n.lasting = agent.Manager, agent.Persistent
	stop := agent.Start()
	n.stop = func() { _ = stop() }
	n.report()
	n.lasting.Settle()
	return nil
}

// restart stops the agent and starts another one.
func (n *testNode) restart() {
	n.stop()
	n.start()
}

// report propagates the node status to the API server and back.
func (n *testNode) report() {
	l := n.lasting
	go func() {
		inUse := l.InUse()
		n.api.change(func() { n.api.node.VolumesInUse = inUse })
		l.NodeChanged()
	}()
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (n *testNode) until(what string, ok func() bool) {
	n.t.Helper()
	defer func() {
		if n.t.Failed() {
			n.t.Logf("left: %v", n.left())
		}
	}()
	await.Within(n.t, 2*time.Minute, 5*time.Millisecond, what, func() (string, bool) {
		events := n.events.Lines()
		return "events\n\t" + strings.Join(events[max(0, len(events)-5):], "\n\t"), ok()
	})
}

// volumeOf creates a claim and its volume with the same name.
func (n *testNode) volumeOf(name string, change func(*v1.PersistentVolume)) string {
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Capacity:    size,
			ClaimRef:    &v1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver:           driverName,
				VolumeHandle:     "test-" + name,
				VolumeAttributes: map[string]string{"tier": "gold"},
			}},
		},
	}
	if change != nil {
		change(pv)
	}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "ns",
			Name:            name,
			UID:             types.UID("claim-" + name),
			ResourceVersion: "1",
		},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: pv.Name},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: size},
	}
	n.api.change(func() {
		n.api.volumes[pv.Name] = pv
		n.api.claims[name] = claim
	})
	return uniqueName(driverName, "test-"+name)
}

// attachTo attaches a volume, as controller and external attacher do.
func (n *testNode) attachTo(handle string) {
	n.api.change(func() {
		name := AttachmentName(handle, driverName, nodeName)
		n.api.attach[name] = &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: storagev1.VolumeAttachmentStatus{
				Attached:           true,
				AttachmentMetadata: map[string]string{"lun": "7"},
			},
		}
		n.api.node.VolumesAttached = append(n.api.node.VolumesAttached,
			v1.AttachedVolume{Name: v1.UniqueVolumeName(uniqueName(driverName, handle))})
	})
	n.lasting.NodeChanged()
}

// driverObject creates the CSIDriver object, by default without attachRequired.
func (n *testNode) driverObject(change func(*storagev1.CSIDriverSpec)) {
	no := false
	d := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driverName},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &no},
	}
	if change != nil {
		change(&d.Spec)
	}
	n.api.change(func() { n.api.drivers[driverName] = d })
}

// podWith returns a pod that mounts claims.
func podWith(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{NodeName: nodeName, ServiceAccountName: "sa", Containers: []v1.Container{{Name: "c"}}},
	}
	for _, c := range claims {
		vol := "v-" + c
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
			Name: vol,
			VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}},
		})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{
			Name:      vol,
			MountPath: "/" + c,
		})
	}
	return p
}

func (n *testNode) ready(p *v1.Pod) {
	n.t.Helper()
	n.Want(p)
	n.until("volumes of "+p.Name, func() bool { return n.State(p.UID).Ready })
}

func (n *testNode) release(p *v1.Pod) {
	n.t.Helper()
	n.Release(pod.RefOf(p))
	n.until("release of "+p.Name, func() bool { done, _ := n.Released(p.UID); return done })
}

// idle waits until volumesInUse is empty.
func (n *testNode) idle() {
	n.t.Helper()
	n.until("nothing in use", func() bool { return len(n.lasting.InUse()) == 0 })
	n.until("nothing left", func() bool { return len(n.left()) == 0 })
}

// againFor returns how often a pod was retried.
func (n *testNode) againFor(uid types.UID) (times int) {
	n.api.change(func() { times = n.looked[uid] })
	return times
}

// left returns the remaining files and mounts of volumes below the root directory.
func (n *testNode) left() []string {
	var out []string
	points, err := mount.At(n.root)
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range points {
		out = append(out, "mount "+p)
	}
	for _, dir := range []string{filepath.Join(n.root, "plugins", PluginName), filepath.Join(n.root, "pods")} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(n.root, path)
			parts := strings.Split(rel, "/")
			shell := parts[0] == "pods" && len(parts) <= 4 || parts[0] == "plugins" && len(parts) <= 4 ||
				parts[0] == "plugins" && parts[3] == blockDir && len(parts) <= 5 &&
					(len(parts) < 5 || parts[4] == "staging" || parts[4] == "publish")
			if !shell {
				out = append(out, rel)
			}
			return nil
		})
		if err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// mounted returns where the pod's container gets a claim's volume.
func (n *testNode) mounted(p *v1.Pod) map[string]string {
	n.t.Helper()
	out := map[string]string{}
	mounts, err := n.Mounts(context.Background(), p, &p.Spec.Containers[0],
		func(s string) (string, error) { return s, nil })
	if err != nil {
		n.t.Fatal(err)
	}
	for _, m := range mounts {
		out[m.Volume] = m.HostPath
	}
	return out
}

func mountBind(source, target string) error { return unix.Mount(source, target, "", unix.MS_BIND, "") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(b)
}

// request returns the manager's request for the claim's volume.
func (n *testNode) request(p *v1.Pod) (volume.Kind, volume.Request) {
	k := n.lasting.Kinds()[0]
	return k, volume.Request{
		Place:  volume.PlaceOf(n.root, p.UID, k.Plugin(), p.Spec.Volumes[0].Name, false),
		Pod:    p,
		Volume: &p.Spec.Volumes[0],
	}
}

// lastReady makes the periodic refresh of a ready volume.
func (n *testNode) lastReady(p *v1.Pod) volume.Ready {
	n.t.Helper()
	k, r := n.request(p)
	ready, err := k.Prepare(context.Background(), r)
	must(n.t, err)
	return ready
}

func (n *testNode) measure(p *v1.Pod) (volume.Measured, error) {
	k, r := n.request(p)
	return k.(volume.Measurer).Measure(context.Background(), r,
		volume.Ready{Path: n.mounted(p)[p.Spec.Volumes[0].Name]})
}
