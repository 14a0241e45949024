package volume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/builtin"
	"keelson/internal/storage/volume/persistent"
	"keelson/internal/storage/volume/persistent/csi"
	"keelson/internal/storage/volume/persistent/hostpath"
	"keelson/internal/storage/volume/persistent/local"
	"keelson/internal/storage/volume/persistent/nfs"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// idleWorld implements the interfaces that the volume code calls, and counts the calls.
type idleWorld struct {
	mu     sync.Mutex
	counts map[string]int
	source map[string]v1.PersistentVolumeSource // by claim
	life   time.Duration                        // of tokens

	republish bool // the driver is to be called again
}

func (w *idleWorld) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// take returns the counts since its last call.
func (w *idleWorld) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.counts
	w.counts = map[string]int{}
	return out
}

func (w *idleWorld) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	w.note("read")
	return &v1.ConfigMap{Data: map[string]string{"a": "b"}}, nil
}

func (w *idleWorld) Secret(context.Context, string, string) (*v1.Secret, error) {
	w.note("read")
	return &v1.Secret{Data: map[string][]byte{"a": []byte("b")}}, nil
}

func (w *idleWorld) Token(context.Context, *v1.Pod, []string, *int64) (string, time.Time, error) {
	w.note("token")
	return "token", time.Now().Add(w.life), nil
}

func (w *idleWorld) Expiring(context.Context, *v1.Pod, []string, *int64) (string, time.Time, error) {
	return "", time.Time{}, errors.New("no tokens are used here")
}

func (w *idleWorld) Forget(types.UID) {}
func (w *idleWorld) Pod(_ *v1.Pod, _, _, reason, message string) {
	w.note("event " + reason + ": " + message)
}
func (w *idleWorld) Node(_, reason, message string) { w.note("event " + reason + ": " + message) }

func (w *idleWorld) Claim(_ context.Context, ns, name string) (*v1.PersistentVolumeClaim, error) {
	w.note("read claim " + name)
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name)},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: name},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}, nil
}

func (w *idleWorld) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef:               &v1.ObjectReference{UID: types.UID(name)},
			PersistentVolumeSource: w.source[name],
		}}, nil
}

func (w *idleWorld) PatchClaimStatus(context.Context, string, string, []byte) (*v1.PersistentVolumeClaim, error) {
	return nil, errors.New("nothing grows here")
}

func (w *idleWorld) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false),
		RequiresRepublish: &w.republish,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
			storagev1.VolumeLifecycleEphemeral}}}, nil
}

func (w *idleWorld) VolumeAttachment(context.Context, string) (*storagev1.VolumeAttachment, error) {
	return nil, errors.New("nothing is attached here")
}

// counted is a kind that counts each attempt by the volume's name.
type counted struct {
	volume.Kind
	w *idleWorld
}

func (c counted) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	c.w.note("prepare " + r.Volume.Name)
	return c.Kind.Prepare(ctx, r)
}

func (c counted) Release(ctx context.Context, p volume.Place) error {
	c.w.note("release " + p.Name)
	return c.Kind.Release(ctx, p)
}

// Volumes of every kind are mounted, and then nothing happens: for a day no part of the volume code
// does anything. There are two exceptions: a token expires, and a claim whose volume can be
// expanded has to be read again, since a node is not authorized to watch it.
func TestMountedVolumesWakeNoWorker(t *testing.T) {
	parity.Differs(t, "VOL-01", "0126")
	need.Root(t, "mounting")
	dir, err := os.MkdirTemp("", "idle") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mount.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	}()
	root, shared, tools := filepath.Join(dir, "root"), filepath.Join(dir, "local"), filepath.Join(dir, "tools")
	for _, d := range []string{root, shared, tools} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range map[string]string{
		"mount.nfs": "",
		"mount":     "for last; do :; done\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec mount -t tmpfs none \"$last\"\n",
	} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const driverName = "idle.csi.keelson.example"
	// Outside of the bubble, like a driver on a node: it waits on a socket.
	driver := csidriver.New(csidriver.Config{Name: driverName, Dir: filepath.Join(dir, "driver"), Node: "n1"})
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	defer driver.Stop()

	synctest.Test(t, func(t *testing.T) {
		w := &idleWorld{counts: map[string]int{}, life: 30 * 24 * time.Hour,
			source: map[string]v1.PersistentVolumeSource{
				"csi":   {CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "test-data"}},
				"local": {Local: &v1.LocalVolumeSource{Path: shared}},
				"nfs":   {NFS: &v1.NFSVolumeSource{Server: "files", Path: "/x"}},
			}}
		const recheck = time.Minute
		log, guard := slog.New(slog.DiscardHandler), mount.NewGuard()
		drivers := csi.NewDrivers(nil, nil, log)
		if err := drivers.Register(t.Context(), driverName, driver.Socket(), []string{"1.0.0"}); err != nil {
			t.Fatal(err)
		}
		lasting := persistent.New(persistent.Config{RootDir: root, API: w, Guard: guard, Events: w, Attach: true,
			Recheck: recheck, Log: log,
			Node:    func() v1.NodeStatus { w.note("node"); return v1.NodeStatus{} },
			OnInUse: func() { w.note("in use") }, Again: func(types.UID) { w.note("again") },
			Plugins: []persistent.Plugin{
				csi.New(csi.Config{RootDir: root, Node: "n1", Drivers: drivers, API: w, Tokens: w, Guard: guard,
					Sharing: volume.Ownership{
						Guard:  guard,
						Events: w,
					}, HasLabels: mount.HasLabels,
					Republish: recheck, Exhausted: func(string) {}, Log: log}),
				local.New(local.Config{RootDir: root, Guard: guard, Events: w}),
				hostpath.New(guard),
				nfs.New(nfs.Config{Guard: guard, Tools: mount.Tools{Path: tools}}),
			}})
		var kinds []volume.Kind
		for _, k := range append(lasting.Kinds(),
			builtin.New(builtin.Config{Objects: w, Tokens: w, Guard: guard,
				Allocatable: func() v1.ResourceList { return v1.ResourceList{} },
				Image:       func(context.Context, *v1.Pod, *v1.Volume) (string, error) { return "image", nil }})...) {
			kinds = append(kinds, counted{k, w})
		}
		m := volume.New(volume.Config{RootDir: root, Kinds: kinds, Guard: guard, Events: w,
			OnChange: func(types.UID) { w.note("notified") }, Log: log,
			MaySwap: func() (bool, error) { return false, nil }, RecursiveReadOnly: func(*v1.Pod) bool { return true },
			StatsPeriod: time.Minute})
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = lasting.Run(ctx) })
		wg.Go(func() { _ = m.Run(ctx) })
		lasting.Settle()

		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns",
			Name:      "all",
			UID:       "u1",
			Labels:    map[string]string{"a": "b"},
		},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		claim := func(name string) v1.VolumeSource {
			return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		}
		for name, source := range map[string]v1.VolumeSource{
			"empty":  {EmptyDir: &v1.EmptyDirVolumeSource{}},
			"memory": {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}},
			"host":   {HostPath: &v1.HostPathVolumeSource{Path: shared}},
			"map":    {ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "m"}}},
			"secret": {Secret: &v1.SecretVolumeSource{SecretName: "s"}},
			"down": {
				DownwardAPI: &v1.DownwardAPIVolumeSource{
					Items: []v1.DownwardAPIVolumeFile{{Path: "l", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}},
				},
			},
			"token": {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
				ServiceAccountToken: &v1.ServiceAccountTokenProjection{
					Path:              "token",
					ExpirationSeconds: ptr.To[int64](3600),
				},
			}}}},
			"image":  {Image: &v1.ImageVolumeSource{Reference: "image"}},
			"inline": {CSI: &v1.CSIVolumeSource{Driver: driverName}},
			"csi":    claim("csi"), "local": claim("local"), "nfs": claim("nfs"),
		} {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{
				Name:      name,
				MountPath: "/" + name,
			})
		}
		m.Want(p)
		for range 100 {
			synctest.Wait()
			if m.State(p.UID).Ready {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if s := m.State(p.UID); !s.Ready {
			t.Fatalf("the volumes never came: %+v, %v", s, w.take())
		}
		mounts, err := m.Mounts(ctx, p, &p.Spec.Containers[0], nil)
		if err != nil || len(mounts) != len(p.Spec.Volumes) {
			t.Fatalf("%d mounts of %d volumes, %v", len(mounts), len(p.Spec.Volumes), err)
		}
		w.take()
		driver.Forget()

		const day = 24 * time.Hour
		time.Sleep(day)
		synctest.Wait()
		looks := map[string]int{}
		for what, n := range w.take() {
			switch what {
			case "prepare csi", "prepare local":
				looks[what] = n
			case "read claim csi", "read claim local":
			default:
				t.Errorf("while nothing happened: %s, %d times", what, n)
			}
		}
		for _, what := range []string{"prepare csi", "prepare local"} {
			if n, least, most := looks[what], int(day/recheck)*2/3, int(day/recheck); n < least || n > most {
				t.Errorf("%s %d times in a day to see whether the volume has expanded, want %d to %d", what, n, least,
					most)
			}
		}
		if got := driver.Methods(); len(got) > 0 {
			t.Errorf("while nothing happened the driver was called: %v", got)
		}

		// Only the token is refreshed.
		time.Sleep(w.life)
		synctest.Wait()
		again := w.take()
		if again["token"] != 1 || again["prepare token"] != 1 || again["prepare secret"] != 0 {
			t.Errorf("after a token's life: %v", again)
		}

		m.Release(pod.RefOf(p))
		for range 100 {
			synctest.Wait()
			if done, _ := m.Released(p.UID); done {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if done, err := m.Released(p.UID); !done {
			t.Error(fmt.Errorf("the volumes never went: %w", err))
		}
		time.Sleep(time.Minute)
		stop()
		wg.Wait()
	})
}
