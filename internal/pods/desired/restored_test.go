package desired

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"keelson/internal/pods/pod"
)

// The kernel's notifications count, and not only what a read finds: if a manifest is removed and restored at once with
// the same text, one pod ends and another one begins. The operations of an editor or a tool that change a file are one
// change.
func TestRestoredManifest(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, path string)
		anew bool
	}{
		{"removed and written", func(t *testing.T, path string) {
			remove(t, path)
			if err := os.WriteFile(path, []byte(manifestText("a", "one")), 0o644); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"removed and renamed into place", func(t *testing.T, path string) {
			remove(t, path)
			put(t, path, manifestText("a", "one"))
		}, true},
		{"moved away and back", func(t *testing.T, path string) {
			away := filepath.Join(t.TempDir(), "away")
			for _, move := range [][2]string{{path, away}, {away, path}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
		{"replaced by a rename", func(t *testing.T, path string) { put(t, path, manifestText("a", "one")) }, false},
		{"replaced as the tools do, by a rename in its directory", func(t *testing.T, path string) {
			next := filepath.Join(filepath.Dir(path), ".next")
			put(t, next, manifestText("a", "one"))
			if err := os.Rename(next, path); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"touched", func(t *testing.T, path string) {
			if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir, r := t.TempDir(), newRecorder()
			put(t, dir+"/a.yaml", manifestText("a", "one"))
			files := newFiles(r, dir)
			s := start(t, Config{
				NodeName: "node1",
				Sources:  []Source{files},
				Events:   r,
				OnChange: r.changed,
				Log:      r.logger(),
			})
			<-s.ReadyC()
			before, ok := s.ByName("default", "a-node1")
			if !ok {
				t.Fatal("no pod")
			}
			tc.do(t, dir+"/a.yaml")
			put(t, dir+"/b.yaml", manifestText("b", "one")) // it is reported after the others
			for timeout := time.After(time.Minute); tc.anew && r.logged("SyncLoop REMOVE") == 0; {
				select {
				case <-r.woken:
				case <-timeout:
					t.Fatal("the removal was not noticed")
				}
			}
			eventually(t, s, r, "a-node1=one b-node1=one")
			after, _ := s.ByName("default", "a-node1")
			anew := after.Spec.Annotations[pod.AnnotationConfigSeen] != before.Spec.Annotations[pod.AnnotationConfigSeen]
			if removed := r.logged("SyncLoop REMOVE") > 0; anew != tc.anew || removed != tc.anew {
				t.Errorf("a pod of its own: %t, want %t; log:\n%s", anew, tc.anew, r.log.String())
			}
			if after.Spec.UID != before.Spec.UID {
				t.Errorf("UID %s after %s", after.Spec.UID, before.Spec.UID)
			}
		})
	}
}

// A manifest that becomes invalid ends no pod, however it was written.
func TestInvalidManifestReplacesRemovedOne(t *testing.T) {
	dir, r := t.TempDir(), newRecorder()
	put(t, dir+"/a.yaml", manifestText("a", "one"))
	f := newFiles(r, dir)
	read(f)
	remove(t, dir+"/a.yaml")
	put(t, dir+"/a.yaml", "kind: [")
	f.noteRemoved(fsnotify.Event{Name: dir + "/a.yaml", Op: fsnotify.Rename})
	pods, _ := f.read(time.Now())
	if left := f.withoutRestored(pods); images(pods) != "a-node1=one" || images(left) != "a-node1=one" {
		t.Errorf("pods %s, without restored ones %s, want both to have the last good one", images(pods), images(left))
	}
	put(t, dir+"/a.yaml", manifestText("a", "one"))
	pods, _ = f.read(time.Now())
	if left := f.withoutRestored(pods); images(left) != "a-node1=one" {
		t.Errorf("without restored ones %q: it went on while its manifest was bad", images(left))
	}
}
