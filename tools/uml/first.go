package uml

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// First runs as the guest's first process: it sets up the guest, runs the program, writes its exit status and turns the
// guest off. It does not return.
func First() {
	dir := os.Getenv(folderEnv)
	status := live(dir)
	if err := os.WriteFile(filepath.Join(dir, statusFile), []byte(status+"\n"), 0o644); err != nil {
		fmt.Println("failed to write the exit status:", err)
	}
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Println("cannot turn the guest off:", err)
	os.Exit(1) // then the kernel ends, too
}

// live returns the program's exit status, or the error because of which it could not start.
func live(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, jobFile))
	if err != nil {
		return "read job: " + err.Error()
	}
	var j job
	if err := json.Unmarshal(data, &j); err != nil {
		return "read job: " + err.Error()
	}
	// This folder comes first, so that later errors can be written to it.
	if err := share(dir); err != nil {
		return err.Error()
	}
	if err := settle(j); err != nil {
		return err.Error()
	}
	code, err := run(j)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(code)
}

// settle sets up the guest for the program.
func settle(j job) error {
	k := kernel{folder: j.Modules}
	if err := root(j, k); err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	for _, s := range j.Share {
		if err := share(s); err != nil {
			return err
		}
	}
	for _, m := range modules {
		if err := k.load(m); err != nil {
			return err
		}
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("set up loopback device: %w", err)
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return fmt.Errorf("set name: %w", err)
	}
	return controllers()
}

// share mounts a folder of this machine, so that writes reach this machine.
func share(dir string) error {
	if err := unix.Mount("host", dir, "hostfs", 0, dir); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// root mounts a temporary overlay over this machine's root and makes it the root. A chroot alone is not enough: the
// cgroup mounts of containers would be empty.
func root(j job, k kernel) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("dev", "/dev", "devtmpfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount /dev: %w", err)
	}
	if err := unix.Mount("/dev/ubda", "/mnt", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount disk: %w", err)
	}
	for _, d := range []string{"upper", "work", "root", "tree", "scratch"} {
		if err := os.Mkdir("/mnt/"+d, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod("/mnt/scratch", 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := k.load("overlay"); err != nil {
		return err
	}
	// A mount of its own, because the layers of an overlay must not contain each other.
	if err := unix.Mount("host", "/mnt/tree", "hostfs", unix.MS_RDONLY, j.Tree); err != nil {
		return fmt.Errorf("mount %s: %w", j.Tree, err)
	}
	const new = "/mnt/root"
	if err := unix.Mount("root", new,
		"overlay", 0, "lowerdir=/mnt/tree:/,upperdir=/mnt/upper,workdir=/mnt/work"); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	for _, m := range []struct{ kind, at string }{
		{"proc", "proc"}, {"sysfs", "sys"}, {"devtmpfs", "dev"}, {"devpts", "dev/pts"}, {"tmpfs", "dev/shm"},
		{"mqueue", "dev/mqueue"},
		{"tmpfs", "run"}, {"cgroup2", "sys/fs/cgroup"},
	} {
		at := filepath.Join(new, m.at)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.MkdirAll(new+scratch, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/mnt/scratch", new+scratch, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", scratch, err)
	}
	if err := os.Chdir(new); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "mnt"); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/mnt", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return links()
}

// links creates the symlinks that the boot of a system would have created. The guest's kernel has the legacy packet
// filter only.
func links() error {
	for at, to := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2",
		"/etc/alternatives/iptables":         "/usr/sbin/iptables-legacy",
		"/etc/alternatives/iptables-save":    "/usr/sbin/iptables-legacy-save",
		"/etc/alternatives/iptables-restore": "/usr/sbin/iptables-legacy-restore",
		scratch + "/oci/runc":                "/usr/bin/crun",
	} {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		if err := os.Symlink(to, at); err != nil {
			return err
		}
	}
	return nil
}

// controllers enables every controller for the cgroups below the root. Only this process leaves the root cgroup: the
// cpu controller cannot be enabled while a real-time kernel thread is in another cgroup.
func controllers() error {
	const top = "/sys/fs/cgroup"
	if err := os.Mkdir(top+"/init", 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := os.WriteFile(top+"/init/cgroup.procs", []byte("1"), 0); err != nil {
		return fmt.Errorf("leave the root cgroup: %w", err)
	}
	have, err := os.ReadFile(top + "/cgroup.controllers")
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	for _, c := range strings.Fields(string(have)) {
		if err := os.WriteFile(top+"/cgroup.subtree_control", []byte("+"+c), 0); err != nil {
			return fmt.Errorf("enable controller %s: %w", c, err)
		}
	}
	return nil
}

func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}

// run runs the program, reaps orphaned processes, and returns the program's exit status.
func run(j job) (int, error) {
	out, err := os.OpenFile("/dev/ttyS0", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, fmt.Errorf("open output: %w", err)
	}
	defer out.Close()
	t, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	if err != nil {
		return 0, fmt.Errorf("open output: %w", err)
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(int(out.Fd()), unix.TCSETS, t); err != nil {
		return 0, fmt.Errorf("open output: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(j.Program, append([]string{j.Program}, j.Args...), &syscall.ProcAttr{
		Dir: j.Dir, Env: j.Env, Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", j.Program, err)
	}
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", j.Program, err)
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case got == pid:
			return ws.ExitStatus(), nil
		}
	}
}
