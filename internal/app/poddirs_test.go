package app

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"keelson/test/kit/parity"
)

func TestDirectoriesOfAPod(t *testing.T) {
	parity.Proves(t, "LIFE-04")
	d := podDirs{root: t.TempDir()}
	for range 2 { // an agent that is started later finds them there
		if err := d.Make("some-uid"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "volumes", "plugins", "containers"} {
		i, err := os.Stat(filepath.Join(d.root, "pods/some-uid", name))
		if err != nil {
			t.Fatal(err)
		}
		if mode := i.Mode(); mode != os.ModeDir|0o750 {
			t.Errorf("directory %q has mode %v, want 0750", name, mode)
		}
	}
}

func TestContainersToBeStartedAnewAreRemembered(t *testing.T) {
	d := podDirs{root: t.TempDir()}
	if err := d.Make("some-uid"); err != nil {
		t.Fatal(err)
	}
	if ids, err := d.Recalled("some-uid"); err != nil || len(ids) > 0 {
		t.Errorf("Recalled = %q, %v before anything was noted", ids, err)
	}
	for _, want := range [][]string{{"a"}, {"a", "b"}, {"b"}} {
		if err := d.NoteRecalled("some-uid", want); err != nil {
			t.Fatal(err)
		}
		if ids, err := d.Recalled("some-uid"); err != nil || !slices.Equal(ids, want) {
			t.Errorf("Recalled = %q, %v, want %q", ids, err, want)
		}
	}
}
