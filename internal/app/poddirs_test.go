package app

import (
	"os"
	"path/filepath"
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
