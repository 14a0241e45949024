package setup

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

func TestRootDirectory(t *testing.T) {
	parity.Proves(t, "RT-54", "PLUG-11")
	t.Run("modes and labels", testRootModes)
	t.Run("mounts below it are shared", testRootShared)
}

func testRootModes(t *testing.T) {
	old := syscall.Umask(0o077) // the umask of the init system must not matter
	defer syscall.Umask(old)
	top := t.TempDir()
	root := filepath.Join(top, "lib", "kubelet")
	at := Directories{
		Root:          root,
		DevicePlugins: filepath.Join(root, "device-plugins"),
		Certificates:  filepath.Join(root, "pki"),
		PodLogs:       filepath.Join(top, "log", "pods"),
		ContainerLogs: filepath.Join(top, "log", "containers"),
		Log:           slog.New(slog.DiscardHandler),
	}
	labelled := map[string]string{}
	at.Label = func(path, label string) error {
		labelled[path] = label
		return errors.New("no SELinux here") // does not keep the agent from starting
	}
	for range 2 { // existing directories are not changed
		if err := at.Make(); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]fs.FileMode{
		".":                    0o750,
		"pods":                 0o750,
		"plugins":              0o750,
		"plugins_registry":     0o750,
		"pod-resources":        0o750,
		"device-plugins":       0o750,
		"checkpoints":          0o700,
		"image_manager":        0o700,
		"pki":                  0o755,
		"../../log/pods":       0o750,
		"../../log/containers": 0o755,
	}
	for name, mode := range want {
		fi, err := os.Stat(filepath.Join(root, name))
		if err != nil || !fi.IsDir() || fi.Mode().Perm() != mode {
			t.Errorf("%s is %v, %v; want a directory of mode %v", name, fi, err, mode)
		}
	}
	for _, name := range []string{"plugins", "plugins_registry", "device-plugins"} {
		if got := labelled[filepath.Join(root, name)]; got != "system_u:object_r:container_file_t:s0" {
			t.Errorf("%s is labelled %q", name, got)
		}
	}
	if len(labelled) != 3 {
		t.Errorf("labelled are %v, want the directories of plugins alone", labelled)
	}
	if err := os.Chmod(filepath.Join(root, "pods"), 0o711); err != nil {
		t.Fatal(err)
	}
	at.Label = nil
	if err := at.Make(); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(root, "pods")); err != nil || fi.Mode().Perm() != 0o711 {
		t.Errorf("pods is %v, %v; want the mode that an administrator gave it", fi, err)
	}
}

// testRootShared has the root directory on a file system with private mount propagation.
func testRootShared(t *testing.T) {
	need.Root(t, "mounting")
	island := t.TempDir()
	if err := unix.Mount(island, island, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(island, "kubelet")
	t.Cleanup(func() {
		_ = unix.Unmount(root, unix.MNT_DETACH) // if it was mounted at all
		if err := unix.Unmount(island, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", island, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root, 0o750); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second start finds it shared
		if err := ShareMounts(root); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(root))
	if err != nil || len(mounts) != 1 || !strings.Contains(mounts[0].Optional, "shared:") {
		t.Errorf("mounts at the root directory: %v, %v; want one that is shared", mounts, err)
	}
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
	if err != nil ||
		slices.ContainsFunc(all, func(m *mountinfo.Info) bool { return !strings.Contains(m.Optional, "shared:") }) {
		t.Errorf("mounts below are %v, %v; want all of them shared", all, err)
	}
}

// Device plugins use one fixed directory, unless the root directory has a subdirectory for them.
func TestDevicePluginDir(t *testing.T) {
	parity.ProvesPart(t, 2, "PLUG-20")
	parity.Differs(t, "RES-44", "0099")
	root := t.TempDir()
	own := filepath.Join(root, "device-plugins")
	if dir, err := DevicePluginDir(root, "/var/lib/kubelet/device-plugins"); err != nil ||
		dir != "/var/lib/kubelet/device-plugins" {
		t.Errorf("they look in %s: %v", dir, err)
	}
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if dir, err := DevicePluginDir(root, "/var/lib/kubelet/device-plugins"); err != nil || dir != own {
		t.Errorf("they look in %s: %v", dir, err)
	}
	if err := errors.Join(os.Remove(own), os.WriteFile(own, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if dir, err := DevicePluginDir(root, "/var/lib/kubelet/device-plugins"); err == nil ||
		!strings.Contains(err.Error(), own+" is not a directory") {
		t.Errorf("they look in %s: %v", dir, err)
	}
}
