package csi

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
)

// The environment of a process that is to be killed while it works on volumes of
// a driver, and of how often that is done.
const (
	victimDir   = "KEELSON_TEST_CSI_VICTIM"
	killsWanted = "KEELSON_TEST_KILLS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// perLife is how often the driver is asked for each step in one life of the
// victim.
var perLife = map[string]int64{"NodeStageVolume": 3, "NodeExpandVolume": 1, "NodePublishVolume": 5, "NodeUnpublishVolume": 5, "NodeUnstageVolume": 3}

// crashVolumes are what the victim works on: two pods share a volume that has
// grown, one has one of its own, and a third one has a block device and a volume
// that it names itself.
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
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}}}
	})
	for _, handle := range []string{"test-shared", "test-own", "test-disk"} {
		name := v1.UniqueVolumeName(uniqueName(driverName, handle))
		if !slices.ContainsFunc(n.api.status().VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name }) {
			n.attachTo(handle)
		}
	}
	c := podWith("c", "disk")
	main := &c.Spec.Containers[0]
	main.VolumeMounts, main.VolumeDevices = []v1.VolumeMount{{Name: "inline", MountPath: "/inline"}}, []v1.VolumeDevice{{Name: "v-disk", DevicePath: "/dev/xvda"}}
	c.Spec.Volumes = append(c.Spec.Volumes, v1.Volume{Name: "inline", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}})
	return []*v1.Pod{podWith("a", "shared"), podWith("b", "shared", "own"), c}
}

// victim has volumes brought to pods and taken away, and says where it is. It
// lives as long as nobody kills it.
func victim(dir string) error {
	n := &testNode{root: filepath.Join(dir, "root"), api: newTestAPI(), events: &testEvents{}, recheck: time.Hour, changed: make(chan struct{}, 1),
		driver: csidriver.New(csidriver.Config{Name: driverName, Dir: filepath.Join(dir, "driver"), Node: "id-of-n1"})}
	if err := n.open(slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	pods := crashVolumes(n)
	all := func(ok func(p *v1.Pod) bool) {
		for slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !ok(p) }) {
			select {
			case <-n.changed:
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	for _, p := range pods {
		n.Want(p)
	}
	all(func(p *v1.Pod) bool { return n.State(p.UID).Ready })
	fmt.Println("ready")
	for _, p := range pods {
		n.Release(pod.RefOf(p))
	}
	all(func(p *v1.Pod) bool { done, _ := n.Released(p.UID); return done })
	for len(n.lasting.InUse()) > 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("released")
	n.stop()
	return nil
}

// The agent is killed when the driver has got a call, or has done it, at every
// step of the way, and at moments between. The next one finds what is there: the
// volume comes to pods that want it, with its data, and goes from those that do
// not, and nothing is left.
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
	kills := 40
	if s := os.Getenv(killsWanted); s != "" {
		var err error
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	steps := []string{"NodeStageVolume", "NodeExpandVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}
	died := map[string]int{}
	for i := range kills {
		what := runVictim(t, n, dir, i, steps)
		died[what]++

		n.start()
		if points, err := mount.At(n.root); err != nil || len(points) > 0 && len(n.lasting.InUse()) == 0 {
			t.Errorf("kill %d %s: nothing is in use with %v mounted, %v", i, what, points, err)
		}
		pods := crashVolumes(n)
		if i%2 == 0 {
			for _, p := range pods {
				n.ready(p)
				for vol, path := range n.mounted(p) {
					if vol == "inline" {
						if on, err := mount.IsPoint(path); !on || err != nil {
							t.Errorf("kill %d %s: the inline volume is not mounted: %v", i, what, err)
						}
						continue
					}
					if got := read(t, filepath.Join(path, "precious")); got != "test-"+vol[2:] {
						t.Errorf("kill %d %s: %s reads %q", i, what, vol, got)
					}
				}
			}
		}
		for _, p := range pods {
			n.release(p)
			if err := n.RemoveDir(t.Context(), p.UID); err != nil {
				t.Errorf("kill %d %s: %v", i, what, err)
			}
		}
		n.idle()
		n.stop()
		if loops := loopsBelow(t, dir); len(loops) > 0 {
			t.Errorf("kill %d %s: loop devices are left: %v", i, what, loops)
		}
		if got := read(t, n.driver.Data("test-disk")+".img"); !strings.HasPrefix(got, "raw") {
			t.Errorf("kill %d %s: the data of the device begins with %.3q", i, what, got)
		}
		for _, name := range []string{"test-shared", "test-own"} {
			if got := read(t, filepath.Join(n.driver.Data(name), "precious")); got != name {
				t.Errorf("kill %d %s: the data of %s reads %q", i, what, name, got)
			}
		}
		if t.Failed() {
			t.Fatalf("failed after kill %d %s", i, what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(died)) {
		t.Logf("%4d kills %s", died[what], what)
	}
	if kills >= 20 {
		for _, s := range steps {
			if died["when asked: "+s] == 0 || died["when done: "+s] == 0 {
				t.Errorf("%s was not among the moments", s)
			}
		}
		parity.Proves(t, "VOL-06")
	}
}

// loopsBelow are the files below a directory that a loop device is attached to.
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

// runVictim runs a victim and kills it at the moment that is i's turn.
func runVictim(t *testing.T, n *testNode, dir string, i int, steps []string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	what, method, done := "by the clock", "", false
	if moment := i % (2*len(steps) + 1); moment < 2*len(steps) {
		method, done = steps[moment/2], moment%2 == 1
		what = "when asked: " + method
		if done {
			what = "when done: " + method
		}
	}
	nth := int64(1)
	if times := perLife[method]; times > 1 {
		nth += rand.Int64N(times)
	}
	kill := make(chan struct{})
	var count atomic.Int64
	started := make(chan struct{})
	n.driver.Observe(func(m string, d bool) {
		if m != method || d != done {
			return
		}
		<-started
		if count.Add(1) == nth {
			_ = cmd.Process.Kill()
			close(kill)
		}
	})
	must(t, cmd.Start())
	close(started)
	if method == "" {
		time.AfterFunc(time.Duration(rand.IntN(120))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if s := lines.Text(); s != "ready" && s != "released" {
			t.Fatalf("the victim said %q", s)
		}
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	n.driver.Observe(nil)
	if method != "" {
		select {
		case <-kill:
		case <-time.After(time.Second):
			t.Fatalf("the victim ended before it was killed %s, the %d. time", what, nth)
		}
	}
	return what // what the driver was asked for goes on without the one who asked
}
