package csi

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/test/kit/await"
	"keelson/test/kit/crash"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/eventlog"
)

func TestMain(m *testing.M) {
	crash.Main(m, map[string]func(string) error{"volumes of a driver": victim})
}

// perLife is how often each call of the driver is made in one life of the victim.
var perLife = map[string]int64{
	"NodeStageVolume":     3,
	"NodeExpandVolume":    1,
	"NodePublishVolume":   5,
	"NodeUnpublishVolume": 5,
	"NodeUnstageVolume":   3,
}

// crashVolumes are the victim's volumes: two pods share a volume that has expanded, one has a volume
// of its own, and a third one has a block volume and an inline volume.
func crashVolumes(n *testNode) []*v1.Pod {
	n.volumeOf("shared", func(pv *v1.PersistentVolume) {
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	})
	n.api.change(func() {
		n.api.claims["shared"].Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	})
	n.volumeOf("own", nil)
	n.volumeOf("disk", func(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) })
	n.api.change(func() {
		n.api.drivers[driverName] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
				storagev1.VolumeLifecycleEphemeral}}}
	})
	for _, handle := range []string{"test-shared", "test-own", "test-disk"} {
		name := v1.UniqueVolumeName(uniqueName(driverName, handle))
		if !slices.ContainsFunc(n.api.status().VolumesAttached,
			func(a v1.AttachedVolume) bool { return a.Name == name }) {
			n.attachTo(handle)
		}
	}
	c := podWith("c", "disk")
	main := &c.Spec.Containers[0]
	main.VolumeMounts, main.VolumeDevices = []v1.VolumeMount{
		{Name: "inline", MountPath: "/inline"},
	}, []v1.VolumeDevice{{Name: "v-disk", DevicePath: "/dev/xvda"}}
	c.Spec.Volumes = append(c.Spec.Volumes, v1.Volume{
		Name:         "inline",
		VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}},
	})
	return []*v1.Pod{podWith("a", "shared"), podWith("b", "shared", "own"), c}
}

// victim prepares and releases the volumes.
func victim(dir string) error {
	n := &testNode{
		root:    filepath.Join(dir, "root"),
		api:     newTestAPI(),
		events:  &eventlog.Log{},
		recheck: time.Hour,
		driver:  csidriver.New(csidriver.Config{Name: driverName, Dir: filepath.Join(dir, "driver"), Node: "id-of-n1"}),
	}
	if err := n.open(slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	pods := crashVolumes(n)
	until := func(ok func() bool) error {
		return await.Poll(context.Background(), time.Millisecond, func() (string, bool) { return "", ok() })
	}
	all := func(ok func(p *v1.Pod) bool) error {
		return until(func() bool { return !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !ok(p) }) })
	}
	for _, p := range pods {
		n.Want(p)
	}
	if err := all(func(p *v1.Pod) bool { return n.State(p.UID).Ready }); err != nil {
		return err
	}
	for _, p := range pods {
		n.Release(pod.RefOf(p))
	}
	if err := all(func(p *v1.Pod) bool { done, _ := n.Released(p.UID); return done }); err != nil {
		return err
	}
	if err := until(func() bool { return len(n.lasting.InUse()) == 0 }); err != nil {
		return err
	}
	n.stop()
	return nil
}

// callMoments are when the driver has received a call, and when it has completed it. The call
// continues when the agent is killed.
func callMoments(n *testNode) (out []crash.Moment) {
	for _, method := range slices.Sorted(maps.Keys(perLife)) {
		for _, done := range []bool{false, true} {
			name := "on request: " + method
			if done {
				name = "when done: " + method
			}
			out = append(out, crash.Moment{
				Name: name,
				Arm: func(kill func()) func() {
					nth := 1 + rand.Int64N(perLife[method])
					var count atomic.Int64
					n.driver.Observe(func(m string, d bool) {
						if m == method && d == done && count.Add(1) == nth {
							kill()
						}
					})
					return func() { n.driver.Observe(nil) }
				},
			})
		}
	}
	return out
}

// The agent is killed when the driver has received or completed a call, at every step, and at each
// change that it makes itself. The next agent prepares volumes for pods that want them, with their
// data, and releases the others; nothing is left.
func TestKilledAtAnyStep(t *testing.T) {
	needLoops(t)
	n := newTestNode(t, nil)
	n.stop()
	dir := filepath.Dir(n.root)
	crashVolumes(n)
	for _, name := range []string{"test-shared", "test-own"} {
		must(t, os.MkdirAll(n.driver.Data(name), 0o777))
		write(t, filepath.Join(n.driver.Data(name), "precious"), name)
	}
	must(t, os.WriteFile(n.driver.Data("test-disk")+".img", []byte("raw"), 0o600))
	moments := callMoments(n)
	died := crash.Run(t, crash.Scene{
		Work:    "volumes of a driver",
		Dir:     dir,
		Kills:   50,
		Moments: moments,
		Check: func(i int, _ string) {
			n.start()
			defer n.stop()
			points, err := mount.At(n.root)
			must(t, err)
			// no controller detaches that one
			points = slices.DeleteFunc(points, func(p string) bool { return strings.HasSuffix(p, "/inline/mount") })
			if len(points) > 0 && len(n.lasting.InUse()) == 0 {
				t.Errorf("nothing is in use with %v mounted", points)
			}
			pods := crashVolumes(n)
			if i%2 == 0 {
				for _, p := range pods {
					n.ready(p)
					for vol, path := range n.mounted(p) {
						if vol == "inline" {
							if on, err := mount.IsPoint(path); !on || err != nil {
								t.Errorf("the inline volume is not mounted: %v", err)
							}
							continue
						}
						if got := read(t, filepath.Join(path, "precious")); got != "test-"+vol[2:] {
							t.Errorf("%s reads %q", vol, got)
						}
					}
				}
			}
			for _, p := range pods {
				n.release(p)
				if err := n.RemoveDir(t.Context(), p.UID); err != nil {
					t.Error(err)
				}
			}
			n.idle()
			if loops := loopsBelow(t, dir); len(loops) > 0 {
				t.Errorf("loop devices are left: %v", loops)
			}
			if got := read(t, n.driver.Data("test-disk")+".img"); !strings.HasPrefix(got, "raw") {
				t.Errorf("the data of the device begins with %.3q", got)
			}
			for _, name := range []string{"test-shared", "test-own"} {
				if got := read(t, filepath.Join(n.driver.Data(name), "precious")); got != name {
					t.Errorf("the data of %s reads %q", name, got)
				}
			}
		},
	})
	if died.Kills >= 4*len(moments) {
		for _, m := range moments {
			if died.By[m.Name] == 0 {
				t.Errorf("%s was not among the moments", m.Name)
			}
		}
	}
	died.Want(t, "at its mkdir", "at its create", "at its fsync", "at its rename", "at its symlink", "at its mount",
		"at its loop device", "at its umount", "at its unlink")
}

// loopsBelow returns the files below a directory that are attached to a loop device.
func loopsBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(t, err)
	for _, f := range all {
		if text, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(text), dir) {
			files = append(files, strings.TrimSpace(string(text)))
		}
	}
	return files
}
