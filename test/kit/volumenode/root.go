package volumenode

import (
	"path/filepath"
	"testing"

	"keelson/internal/storage/mount"
	"keelson/test/kit/need"
)

// Root makes a root directory of agents. What is mounted below it is unmounted at the end of the test.
func Root(t testing.TB) string {
	t.Helper()
	need.Root(t, "mounting")
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		points, err := mount.At(root)
		if err != nil {
			t.Error(err)
		}
		for _, p := range points {
			if err := mount.Unmount(p); err != nil {
				t.Error(err)
			}
		}
	})
	return root
}
