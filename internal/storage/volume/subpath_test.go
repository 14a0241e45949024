package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/internal/storage/mount"
)

// An open symlink is not mounted: accesses to the mount would lead out of the volume.
func TestSymlinkIsNeverMounted(t *testing.T) {
	dir := t.TempDir()
	link, base := filepath.Join(dir, "link"), filepath.Join(dir, "base")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(link, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	source := os.NewFile(uintptr(fd), link)
	defer source.Close()
	err = bindAt(source, base, filepath.Join(base, "v/c/0"))
	if !errors.Is(err, mount.ErrEscapes) {
		t.Errorf("bindAt = %v", err)
	}
	points, err := mount.At(base)
	if err != nil || len(points) > 0 {
		t.Errorf("mounted: %v, %v", points, err)
	}
	for _, p := range points {
		_ = mount.Unmount(p)
	}
}
