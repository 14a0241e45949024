package volume_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/internal/storage/volume/persistent/csi"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// A driver with requiresRepublish is called again for a pod about once per syncFrequency. If the
// call fails, the pod keeps its volume, and the call is retried.
func TestVolumesAreRepublished(t *testing.T) {
	need.Root(t, "mounting")
	parity.ProvesPart(t, 2, "VOL-65")
	dir, err := os.MkdirTemp("", "again") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mount.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	}()
	const driverName = "again.csi.keelson.example"
	driver := csidriver.New(csidriver.Config{Name: driverName, Dir: filepath.Join(dir, "driver"), Node: "n1"})
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	defer driver.Stop()
	synctest.Test(t, func(t *testing.T) {
		w := &idleWorld{counts: map[string]int{}, republish: true, source: map[string]v1.PersistentVolumeSource{
			"data": {CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "test-data"}}}}
		root, log, guard := filepath.Join(dir, "root"), slog.New(slog.DiscardHandler), mount.NewGuard()
		drivers := csi.NewDrivers(nil, nil, log)
		if err := drivers.Register(t.Context(), driverName, driver.Socket(), []string{"1.0.0"}); err != nil {
			t.Fatal(err)
		}
		lasting := persistent.New(persistent.Config{RootDir: root, API: w, Guard: guard, Events: w, Recheck: time.Hour,
			Log:  log,
			Node: func() v1.NodeStatus { return v1.NodeStatus{} }, OnInUse: func() {}, Again: func(types.UID) {},
			Plugins: []persistent.Plugin{csi.New(csi.Config{RootDir: root, Node: "n1", Drivers: drivers, API: w,
				Tokens: w, Guard: guard,
				Sharing: volume.Ownership{
					Guard:  guard,
					Events: w,
				}, HasLabels: mount.HasLabels, Republish: time.Minute, Exhausted: func(string) {}, Log: log})}})
		m := volume.New(volume.Config{RootDir: root, Kinds: lasting.Kinds(), Guard: guard, Events: w,
			OnChange: func(types.UID) {}, Log: log,
			MaySwap: func() (bool, error) { return false, nil }, RecursiveReadOnly: func(*v1.Pod) bool { return true }})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = lasting.Run(ctx) })
		wg.Go(func() { _ = m.Run(ctx) })
		lasting.Settle()

		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u1"}, Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes: []v1.Volume{
				{
					Name: "v",
					VolumeSource: v1.VolumeSource{
						PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
					},
				},
			}}}
		comes := func(what string, ok func() bool) { // the driver runs outside of the synctest bubble
			t.Helper()
			for range 1000 {
				synctest.Wait()
				if ok() {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Fatalf("never: %s", what)
		}
		m.Want(p)
		comes("the volume", func() bool { return m.State(p.UID).Ready })
		published := func(during time.Duration) int {
			synctest.Wait()
			before := driver.Count("NodePublishVolume")
			time.Sleep(during)
			synctest.Wait()
			return driver.Count("NodePublishVolume") - before
		}
		if n := published(time.Hour); n < 40 || n > 60 {
			t.Errorf("published %d times in an hour, want once in 60 to 90 s", n)
		}
		driver.Always("NodePublishVolume", csidriver.Fault{Err: status.Error(codes.PermissionDenied, "not now")})
		if n := published(30 * time.Minute); n < 10 {
			t.Errorf("tried %d times while it fails", n)
		}
		mounts, err := m.Mounts(ctx, p, &p.Spec.Containers[0], nil)
		if err != nil || !m.State(p.UID).Ready || driver.Count("NodeUnpublishVolume") > 0 {
			t.Fatalf("a call that failed took the volume: %v, %v", err, driver.Methods())
		}
		if on, err := mount.IsPoint(mounts[0].HostPath); !on || err != nil {
			t.Errorf("the volume is not mounted any more: %v", err)
		}
		driver.Always("NodePublishVolume", csidriver.Fault{})
		time.Sleep(5 * time.Minute)
		if n := published(time.Hour); n < 40 || n > 60 || m.State(p.UID).Err != nil {
			t.Errorf("published %d times in an hour after that: %v", n, m.State(p.UID).Err)
		}

		m.Release(pod.RefOf(p))
		comes("the release", func() bool { done, _ := m.Released(p.UID); return done })
		comes("the end", func() bool { return driver.Count("NodeUnstageVolume") > 0 })
		stop()
		wg.Wait()
	})
}
