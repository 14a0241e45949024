package poddir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podsync"
	"keelson/test/kit/parity"
)

func TestDirectoriesOfAPod(t *testing.T) {
	parity.Proves(t, "LIFE-04")
	d := Dirs{Root: t.TempDir()}
	for range 2 { // an agent that is started later finds them there
		if err := d.Make("some-uid"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "volumes", "plugins", "containers"} {
		i, err := os.Stat(filepath.Join(d.Root, "pods/some-uid", name))
		if err != nil {
			t.Fatal(err)
		}
		if mode := i.Mode(); mode != os.ModeDir|0o750 {
			t.Errorf("directory %q has mode %v, want 0750", name, mode)
		}
	}
}

// An agent that dies while it removes what is left of a pod leaves the directory by which the next agent finds the
// rest.
func TestInterruptedRemovalIsFoundAgain(t *testing.T) {
	parity.ProvesPart(t, 3, "RT-32")
	d := Dirs{Root: t.TempDir(), LogRoot: t.TempDir(), Links: t.TempDir()}
	logs := filepath.Join(d.LogRoot, "ns_web_some-uid", "main")
	link := func(name, to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(d.Links, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("web_ns_main-other.log", filepath.Join(d.LogRoot, "ns_web_some-uid-2", "main", "0.log"))
	d.RemoveDir = func(context.Context, types.UID) error {
		if _, err := os.Stat(logs); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory goes while there are logs: %v", err)
		}
		return nil
	}
	for _, ref := range []pod.Ref{{UID: "some-uid", Namespace: "ns", Name: "web"}, {UID: "some-uid"}} {
		if err := os.MkdirAll(logs, 0o755); err != nil {
			t.Fatal(err)
		}
		link("web_ns_main-kept.log", filepath.Join(logs, "0.log"))
		if err := d.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(d.Links)
		if err != nil || len(left) != 1 || left[0].Name() != "web_ns_main-other.log" {
			t.Errorf("left are the links %v, %v; want the other pod's", left, err)
		}
		if left, err := os.ReadDir(d.LogRoot); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	}
}

// Only directories with the name of a pod's log directory, of an unknown pod, count as traces of a pod.
func TestLogsOfUnknownPods(t *testing.T) {
	d := Dirs{LogRoot: filepath.Join(t.TempDir(), "logs")}
	knows := func(uid types.UID) bool { return uid == "known" }
	if got, err := d.Logged(knows); err != nil || len(got) != 0 {
		t.Errorf("without a directory: %v, %v", got, err)
	}
	for _, name := range []string{"ns_web_known", "ns_web_left", "archive", "a_b", "ns__x", "ns_web_", "a_b_c_d"} {
		if err := os.MkdirAll(filepath.Join(d.LogRoot, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(d.LogRoot, "ns_web_file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Logged(knows); err != nil || !slices.Equal(got, []types.UID{"left"}) {
		t.Errorf("found %v, %v", got, err)
	}
}

func TestRestartsAreRecorded(t *testing.T) {
	d := Dirs{Root: t.TempDir()}
	if err := d.Make("some-uid"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []podsync.Restarts{
		{},
		{StoppedForRestart: []string{"a", "b"}},
		{StoppedForRestart: []string{"b"}, Anew: map[string]int{"main": 2}},
	} {
		if len(want.StoppedForRestart) > 0 {
			if err := d.NoteRestarts("some-uid", want); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.Restarts("some-uid"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Restarts = %+v, %v, want %+v", got, err, want)
		}
	}
	path := filepath.Join(d.Root, "pods/some-uid/restarts")
	if err := os.WriteFile(path, []byte(`{"recalled": "a"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Restarts("some-uid"); err == nil {
		t.Error("a damaged file was read")
	}
	if _, err := os.Stat(path + checkpoint.SuffixBad); err != nil {
		t.Errorf("the damaged file is not kept: %v", err)
	}
	if got, err := d.Restarts("some-uid"); err != nil || !reflect.DeepEqual(got, podsync.Restarts{}) {
		t.Errorf("after that Restarts = %+v, %v", got, err)
	}
}
