package csi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

// damages are ways to damage a record.
var damages = map[string]func(good string) string{
	"empty":           func(string) string { return "" },
	"cut off":         func(good string) string { return good[:len(good)/2] },
	"of another kind": func(string) string { return "\x7fELF\x02" },
	// one bit flipped
	"of another volume": func(good string) string { return strings.ReplaceAll(good, "test-data", "test-dbta") },
	"of another driver": func(good string) string { return strings.ReplaceAll(good, driverName, "other.example") },
}

// An unusable record is restored from other sources, and the unusable one is kept until the volume
// is removed. The pod that uses the volume is not affected, and at the end nothing is left.
func TestRestoreUnusableRecords(t *testing.T) {
	for what, damage := range damages {
		for _, which := range []string{"device", "pod", "both"} {
			for _, wanted := range []bool{true, false} {
				name := what + " " + which
				if !wanted {
					name += " of a pod that is gone"
				}
				t.Run(name, func(t *testing.T) {
					n := newTestNode(t, nil)
					id := v1.UniqueVolumeName(n.volumeOf("data", nil))
					n.attachTo("test-data")
					p := podWith("a", "data")
					n.ready(p)
					place := filepath.Join(n.root, "pods/uid-a/volumes/kubernetes.io~csi/pv-data")
					write(t, filepath.Join(place, "mount/f"), "kept")
					n.stop()
					n.driver.Forget()
					dirs := map[string][]string{
						"device": {paths{n.root}.device(driverName, "test-data")},
						"pod":    {place},
					}
					dirs["both"] = append(dirs["device"], dirs["pod"]...)
					bad := map[string]string{}
					for _, dir := range dirs[which] {
						path := filepath.Join(dir, recordFile)
						bad[path] = damage(read(t, path))
						write(t, path, bad[path])
					}
					n.start()
					if got := n.lasting.InUse(); !slices.Contains(got, id) {
						t.Errorf("in use: %v", got)
					}
					if wanted {
						n.ready(p)
						if got := read(t, filepath.Join(n.mounted(p)["v-data"], "f")); got != "kept" {
							t.Errorf("the pod reads %q", got)
						}
						if got := n.driver.Count("NodeUnpublishVolume") + n.driver.Count("NodeUnstageVolume"); got > 0 {
							t.Errorf("the driver got %d calls to undo it", got)
						}
					}
					for path, text := range bad {
						if got := read(t, path+checkpoint.SuffixBad); got != text {
							t.Errorf("%s keeps %q", path, got)
						}
						reported := slices.DeleteFunc(n.events.Lines(), func(e string) bool {
							return !strings.Contains(e, "node Warning StateFileUnusable") ||
								!strings.Contains(e, "it is kept as "+path+".bad")
						})
						if len(reported) != 1 {
							t.Errorf("%d events about %s: %q", len(reported), path, reported)
						}
					}
					n.release(p)
					n.idle()
					if got := n.driver.Last(
						"NodeUnpublishVolume").(*csiv1.NodeUnpublishVolumeRequest); got.VolumeId != "test-data" {
						t.Errorf("unpublished %s", got.VolumeId)
					}
					if got := n.driver.Last(
						"NodeUnstageVolume").(*csiv1.NodeUnstageVolumeRequest); got.VolumeId != "test-data" {
						t.Errorf("unstaged %s", got.VolumeId)
					}
					must(t, n.RemoveDir(t.Context(), p.UID))
					if got := read(t, filepath.Join(n.driver.Data("test-data"), "f")); got != "kept" {
						t.Errorf("the data reads %q", got)
					}
				})
			}
		}
	}
}

// A volume that cannot be identified stays in use. A pod that uses it restores its record.
func TestUnidentifiableRecord(t *testing.T) {
	n := newTestNode(t, nil)
	id := v1.UniqueVolumeName(n.volumeOf("disk",
		func(pv *v1.PersistentVolume) { mode := v1.PersistentVolumeBlock; pv.Spec.VolumeMode = &mode }))
	needLoops(t)
	must(t, os.MkdirAll(filepath.Dir(n.driver.Data("test-disk")), 0o750))
	n.attachTo("test-disk")
	p := podWith("a")
	p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	p.Spec.Volumes = []v1.Volume{
		{
			Name: "v",
			VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
			},
		},
	}
	n.ready(p)
	n.stop()
	path := filepath.Join(paths{n.root}.blockRecord("pv-disk"), recordFile)
	write(t, path, `{"driverName":`)
	n.start()
	if got := n.lasting.InUse(); !slices.Contains(got, id) {
		t.Errorf("in use: %v, want that of the node status", got)
	}
	n.Release(pod.RefOf(p))
	n.until("a failure", func() bool { _, err := n.Released(p.UID); return err != nil })
	if points, err := mount.At(n.root); err != nil || len(points) == 0 {
		t.Errorf("the volume was taken off: %v, %v", points, err)
	}
	n.restart()
	n.ready(p)
	if got, err := os.ReadFile(path + checkpoint.SuffixBad); err != nil || string(got) != `{"driverName":` {
		t.Errorf("it is kept as %q, %v", got, err)
	}
	n.release(p)
	n.restart() // until then all volumes of the node status are in use
	n.idle()
}
