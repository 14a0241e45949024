package persistent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/internal/storage/volume/persistent/local"
	"keelson/internal/storage/volume/persistent/nfs"
)

// The environment of a process that is to be killed while it works on volumes
// below a directory, and of how often that is done.
const (
	victimDir   = "KEELSON_TEST_VOLUMES_VICTIM"
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

// bed is a node with local and NFS volumes. Below its directory are the agent's
// root, the local volumes' data, the tools, and links to disks.
type bed struct {
	*volume.Manager
	dir     string
	lasting *persistent.Volumes
	changed chan struct{}
	stop    func()
}

func (b *bed) path(name string) string { return filepath.Join(b.dir, name) }

// The claims: a directory, a disk with a file system, a disk as a device, and an
// export.
func (b *bed) source(name string) (v1.PersistentVolumeSource, v1.PersistentVolumeMode) {
	switch name {
	case "export":
		return v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "files", Path: "/x"}}, v1.PersistentVolumeFilesystem
	case "raw":
		return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: b.path("raw")}}, v1.PersistentVolumeBlock
	default:
		return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: b.path(name)}}, v1.PersistentVolumeFilesystem
	}
}

func (b *bed) Claim(_ context.Context, ns, name string) (*v1.PersistentVolumeClaim, error) {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}, nil
}

func (b *bed) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	source, mode := b.source(name)
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		ClaimRef: &v1.ObjectReference{UID: types.UID(name)}, PersistentVolumeSource: source, VolumeMode: &mode}}, nil
}

func (b *bed) PatchClaimStatus(context.Context, string, string, []byte) (*v1.PersistentVolumeClaim, error) {
	return nil, errors.New("nothing grows here")
}

func (b *bed) Pod(*v1.Pod, string, string, string, string) {}
func (b *bed) Node(string, string, string)                 {}

// start is the start of an agent on what there is.
func (b *bed) start() {
	guard, log, tools := mount.NewGuard(), slog.New(slog.DiscardHandler), mount.Tools{Path: b.path("tools")}
	b.changed = make(chan struct{}, 1)
	tell := func() {
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
	b.lasting = persistent.New(persistent.Config{RootDir: b.path("root"), Guard: guard, Events: b, API: b, Log: log, Recheck: time.Hour,
		Plugins: []persistent.Plugin{local.New(local.Config{RootDir: b.path("root"), Guard: guard, Events: b, Tools: tools}), nfs.New(nfs.Config{Guard: guard, Tools: tools})},
		Node:    func() v1.NodeStatus { return v1.NodeStatus{} }, OnInUse: tell, Again: func(types.UID) {}})
	b.Manager = volume.New(volume.Config{RootDir: b.path("root"), Kinds: b.lasting.Kinds(), Guard: guard, Events: b, OnChange: func(types.UID) { tell() }, Log: log,
		MaySwap: func() (bool, error) { return false, nil }, RecursiveReadOnly: func(*v1.Pod) bool { return false }})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.lasting.Run(ctx) })
	wg.Go(func() { _ = b.Run(ctx) })
	b.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	b.lasting.Settle()
}

// pods are two that share a disk and a directory, and have all the rest between
// them.
func (b *bed) pods() []*v1.Pod {
	var out []*v1.Pod
	for name, claims := range map[string][]string{"a": {"dir", "disk", "export"}, "b": {"dir", "disk", "raw"}} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		c := &p.Spec.Containers[0]
		for _, claim := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
			if claim == "raw" {
				c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: claim, DevicePath: "/dev/x"})
			} else {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: claim, MountPath: "/" + claim})
			}
		}
		out = append(out, p)
	}
	return out
}

// all waits until something is so of every pod. What the last unstaging changes is
// told by nobody; it is looked at now and then.
func (b *bed) all(ctx context.Context, pods []*v1.Pod, ok func(*v1.Pod) bool) error {
	for slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !ok(p) }) {
		select {
		case <-b.changed:
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *bed) bring(ctx context.Context, pods []*v1.Pod) error {
	for _, p := range pods {
		b.Want(p)
	}
	return b.all(ctx, pods, func(p *v1.Pod) bool { return b.State(p.UID).Ready })
}

func (b *bed) take(ctx context.Context, pods []*v1.Pod) error {
	for _, p := range pods {
		b.Release(pod.RefOf(p))
	}
	return b.all(ctx, pods, func(p *v1.Pod) bool { done, _ := b.Released(p.UID); return done })
}

// victim has volumes brought to pods and taken away, for as long as nobody kills
// it.
func victim(dir string) error {
	b := &bed{dir: dir}
	b.start()
	ctx := context.Background()
	if err := b.bring(ctx, b.pods()); err != nil {
		return err
	}
	fmt.Println("ready")
	if err := b.take(ctx, b.pods()); err != nil {
		return err
	}
	for len(b.left()) > 0 {
		time.Sleep(time.Millisecond)
	}
	b.stop()
	return nil
}

// left are mounts, loop devices, and what is in directories of volumes.
func (b *bed) left() (out []string) {
	points, err := mount.At(b.path("root"))
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range points {
		out = append(out, "mount "+p)
	}
	for _, pattern := range []string{"pods/*/volumes/*/*", "pods/*/volumeDevices/*/*", "plugins/kubernetes.io/*/mounts/*", "plugins/kubernetes.io/*/volumeDevices/*"} {
		found, err := filepath.Glob(filepath.Join(b.path("root"), pattern))
		if err != nil {
			return []string{err.Error()}
		}
		out = append(out, found...)
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range loops {
		if text, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(text), b.path("root")) {
			out = append(out, "loop device of "+strings.TrimSpace(string(text)))
		}
	}
	return out
}

// tools are the machine's own programs, but for what a test asks for: a file says
// at which call of which of them the process that asked is to be killed, and
// whether before, while or after it is done. NFS is a file system of memory, with
// what the server has in it.
func (b *bed) tools(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(b.path("tools"), 0o755))
	const frame = `#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
name=NAME
at() { [ "$(cat DIR/kill 2>/dev/null)" = "$name $1" ] && rm DIR/kill 2>/dev/null && echo "$name $1" > DIR/killed && kill -9 $PPID; }
at before && exit 1
at during && sleep 0.05
BODY
code=$?
at after
exit $code
`
	for name, body := range map[string]string{
		"mount": `case "$2" in
nfs) for last; do :; done; mount -t tmpfs none "$last" && echo "of export" > "$last/f";;
*) mount "$@";;
esac`,
		"mount.nfs": "true", "blkid": `blkid "$@"`, "fsck": `fsck "$@"`, "mkfs.ext4": `mkfs.ext4 "$@"`,
	} {
		script := strings.NewReplacer("NAME", name, "DIR", b.dir, "BODY", body).Replace(frame)
		must(t, os.WriteFile(filepath.Join(b.path("tools"), name), []byte(script), 0o755))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// loop makes a disk of a file.
func loop(t *testing.T, file string, size int64) string {
	t.Helper()
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, size))
	out, err := exec.Command("losetup", "--show", "-f", file).CombinedOutput()
	if err != nil {
		t.Skipf("this machine has no loop devices to spare: %v: %s", err, out)
	}
	disk := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", disk).CombinedOutput(); err != nil {
			t.Errorf("give %s back: %v: %s", disk, err, out)
		}
	})
	return disk
}

// The agent is killed before, while and after a tool does its work for it, and at
// moments between, while it brings local and NFS volumes and takes them away. The
// next one brings them to pods with their data, and when those have gone nothing is
// left, and no data lost.
func TestKilledAtAnyStep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	b := &bed{dir: dir}
	b.tools(t)
	for _, d := range []string{"root", "dir"} {
		must(t, os.Mkdir(b.path(d), 0o755))
	}
	must(t, os.Symlink(loop(t, b.path("disk.img"), 16<<20), b.path("disk")))
	must(t, os.Symlink(loop(t, b.path("raw.img"), 1<<20), b.path("raw")))
	t.Cleanup(func() { // nothing, unless the test failed
		points, err := mount.At(dir)
		if err != nil {
			t.Error(err)
		}
		for _, p := range points {
			_ = mount.DetachLoop(p)
			if err := mount.Unmount(p); err != nil {
				t.Error(err)
			}
		}
	})
	must(t, os.WriteFile(b.path("dir/f"), []byte("of dir"), 0o600))
	must(t, os.WriteFile(b.path("raw"), []byte("of raw"), 0o600))
	kills := 30
	if s := os.Getenv(killsWanted); s != "" {
		kills, err = strconv.Atoi(s)
		must(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	moments := []string{""} // by the clock
	for _, tool := range []string{"blkid", "mkfs.ext4", "fsck", "mount"} {
		for _, when := range []string{"before", "during", "after"} {
			if tool == "mkfs.ext4" && when == "during" {
				continue // it would go on under the next agent's hands, which starts sooner here than on any node
			}
			moments = append(moments, tool+" "+when)
		}
	}
	died := map[string]int{}
	written := false // the disk has a file system with a file of ours
	for i := range kills {
		moment := moments[0]
		if i%2 == 1 {
			moment = moments[1:][i/2%(len(moments)-1)]
		}
		if strings.HasPrefix(moment, "mkfs") { // there is no file system yet
			wipe(t, b.path("disk"))
			written = false
		}
		what := killVictim(t, b, moment)
		died[what]++
		b.start()
		pods := b.pods()
		if i%3 > 0 {
			must(t, b.bring(ctx, pods))
			for _, p := range pods {
				mounts, err := b.Mounts(ctx, p, &p.Spec.Containers[0], nil)
				must(t, err)
				for _, m := range mounts {
					file := filepath.Join(m.HostPath, "f")
					if m.Volume == "disk" && !written {
						must(t, os.WriteFile(file, []byte("of disk"), 0o600))
						written = true
					}
					if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != "of "+m.Volume {
						t.Errorf("kill %d %s: %s of pod %s reads %q, %v", i, what, m.Volume, p.Name, got, err)
					}
				}
			}
		}
		must(t, b.take(ctx, pods))
		for _, p := range pods {
			if err := b.RemoveDir(ctx, p.UID); err != nil {
				t.Errorf("kill %d %s: %v", i, what, err)
			}
		}
		if err := b.all(ctx, pods[:1], func(*v1.Pod) bool { return len(b.left()) == 0 }); err != nil {
			t.Errorf("kill %d %s: left: %v", i, what, b.left())
		}
		b.stop()
		for file, want := range map[string]string{"dir/f": "of dir", "raw": "of raw"} {
			got := make([]byte, len(want))
			f, err := os.Open(b.path(file))
			must(t, err)
			if _, err := f.Read(got); err != nil || string(got) != want {
				t.Errorf("kill %d %s: %s reads %q, %v", i, what, file, got, err)
			}
			must(t, f.Close())
		}
		if t.Failed() {
			t.Fatalf("failed after kill %d %s", i, what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(died)) {
		t.Logf("%4d kills %s", died[what], what)
	}
	if kills >= 2*len(moments) {
		for _, m := range moments[1:] {
			if died["when asked for "+m] == 0 {
				t.Errorf("%s was not among the moments", m)
			}
		}
	}
}

// wipe takes the file system off a disk. Whoever came to be on this machine while
// it was mounted may hold on to it for a moment.
func wipe(t *testing.T, disk string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.Command("wipefs", "-a", disk).CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("wipe disk: %v: %s", err, out)
		}
	}
}

// killVictim runs a victim, which dies at the moment.
func killVictim(t *testing.T, b *bed, moment string) string {
	t.Helper()
	what := "by the clock"
	if moment != "" {
		what = "when asked for " + moment
		must(t, os.WriteFile(b.path("kill"), []byte(moment), 0o600))
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimDir+"="+b.dir)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	must(t, cmd.Start())
	var timer *time.Timer
	if moment == "" {
		timer = time.AfterFunc(rand.N(400*time.Millisecond), func() { _ = cmd.Process.Kill() })
	}
	_ = cmd.Wait() // killed, or done already
	if timer != nil {
		timer.Stop()
	} else if _, err := os.Stat(b.path("killed")); err != nil {
		t.Fatalf("the victim ended before it was killed %s, saying %q", what, said.String())
	}
	must(t, os.RemoveAll(b.path("killed")))
	return what
}
