package hostpath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Mkdir(at("dir"),
			0o700), os.WriteFile(at("file"), []byte("x"),
			0o600), os.Symlink("dir", at("link")), os.Symlink("nowhere", at("dangling")),
		unix.Mknod(at("sock"), unix.S_IFSOCK|0o600, 0), unix.Mkfifo(at("fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const failed = "hostPath type check failed: "
	for _, tc := range []struct {
		path string
		kind v1.HostPathType
		want string // the error; empty for none
	}{
		{at("dir"), v1.HostPathDirectory, ""},
		{at("link"), v1.HostPathDirectory, ""},
		{at("file"), v1.HostPathDirectory, failed + at("file") + " is not a directory"},
		{at("none"), v1.HostPathDirectory, failed + at("none") + " is not a directory"},
		{at("made/deep"), v1.HostPathDirectoryOrCreate, ""},
		{at("dir"), v1.HostPathDirectoryOrCreate, ""},
		{at("file"), v1.HostPathDirectoryOrCreate, failed + at("file") + " is not a directory"},
		{at("file"), v1.HostPathFile, ""},
		{at("dir"), v1.HostPathFile, failed + at("dir") + " is not a file"},
		{at("fifo"), v1.HostPathFile, failed + at("fifo") + " is not a file"},
		{at("none"), v1.HostPathFile, failed + at("none") + " is not a file"},
		{at("newfile"), v1.HostPathFileOrCreate, ""},
		{at("file"), v1.HostPathFileOrCreate, ""},
		{at("no/parent"), v1.HostPathFileOrCreate, "no such file or directory"},
		{at("sock"), v1.HostPathSocket, ""},
		{at("file"), v1.HostPathSocket, failed + at("file") + " is not a socket file"},
		{"/dev/null", v1.HostPathCharDev, ""},
		{at("file"), v1.HostPathCharDev, failed + at("file") + " is not a character device"},
		{"/dev/null", v1.HostPathBlockDev, failed + "/dev/null is not a block device"},
		// A path below a file does not exist.
		{at("file/x"), v1.HostPathDirectory, failed + at("file/x") + " is not a directory"},
		{at("file/x"), v1.HostPathFile, failed + at("file/x") + " is not a file"},
		{at("file/x"), v1.HostPathDirectoryOrCreate, "mkdir " + at("file") + ": not a directory"},
		{at("file/x"), v1.HostPathFileOrCreate, "open " + at("file/x") + ": not a directory"},
		{at("dir"), "Nonsense", "invalid volume type"},
	} {
		err := checkType(tc.path, tc.kind)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(pod.TextOf(err), tc.want) {
			t.Errorf("%s as %s: %v, want %q", tc.path, tc.kind, err, tc.want)
		}
	}
	if got, err := os.ReadFile(at("file")); err != nil || string(got) != "x" {
		t.Errorf("an existing file now holds %q, %v", got, err)
	}
	if st, err := os.Stat(at("made/deep")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("a made directory is %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(at("newfile")); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("a made file is %v, %v", st.Mode(), err)
	}
	for _, unmade := range []string{"none", "nowhere", "no"} {
		if _, err := os.Lstat(at(unmade)); err == nil {
			t.Errorf("%s was made", unmade)
		}
	}
	parity.ProvesPart(t, 4, "VOL-42")
}

// A block device matches no other type. Creating one requires root.
func TestHostPathBlockDevice(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-42")
	need.Root(t, "a block device")
	disk := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(disk, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 255))); err != nil {
		t.Fatal(err)
	}
	if err := checkType(disk, v1.HostPathBlockDev); err != nil {
		t.Error(err)
	}
	want := "hostPath type check failed: " + disk + " is not a character device"
	if err := checkType(disk, v1.HostPathCharDev); err == nil || err.Error() != want {
		t.Errorf("as a character device: %v, want %q", err, want)
	}
	if err := checkType("/dev/null", v1.HostPathFile); err == nil {
		t.Error("a character device passes for a file")
	}
}

// hostPath types are checked through symlinks, as they are mounted: a symlink to a socket is not a
// directory, and nothing is created behind a dangling one.
func TestHostPathSymlink(t *testing.T) {
	dir := t.TempDir()
	real, link, dangling := filepath.Join(dir, "real"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	if err := errors.Join(unix.Mknod(real, unix.S_IFSOCK|0o600, 0), os.Symlink(real, link),
		os.Symlink(filepath.Join(dir, "behind"), dangling)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []v1.HostPathType{v1.HostPathDirectory, v1.HostPathFile, v1.HostPathDirectoryOrCreate,
		v1.HostPathFileOrCreate, v1.HostPathBlockDev, v1.HostPathCharDev} {
		if err := checkType(link, want); err == nil {
			t.Errorf("a link to a socket passes for %s", want)
		}
	}
	if err := checkType(link, v1.HostPathSocket); err != nil {
		t.Errorf("a link to a socket is refused as one: %v", err)
	}
	if err := checkType(dangling, v1.HostPathDirectoryOrCreate); err == nil {
		t.Error("a link to nothing passes for a directory")
	}
	if _, err := os.Lstat(filepath.Join(dir, "behind")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made behind the link: %v", err)
	}
}
