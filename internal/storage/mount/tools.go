package mount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"keelson/internal/pods/pod"
)

// Tools runs programs of the node for file systems: to mount those with a mount helper, to probe
// disks, and to create file systems. Calls end soon after ctx, unless the program is in an
// uninterruptible system call.
type Tools struct {
	// Path lists the directories of programs, as in $PATH; empty means the usual ones.
	Path string
	// Alive is called periodically while a file system is created or repaired, which may take
	// longer than the deadline of an attempt. It may be nil.
	Alive func(context.Context)
	// Every is the period of Alive; zero means progressPeriod.
	Every time.Duration

	held *os.File // inherited by programs, to keep the lock of a disk
	all  bool     // child processes of a program are killed with it
}

const (
	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// killTimeout is how long a terminated program is waited for.
	killTimeout = 5 * time.Second
	// progressPeriod is the default period of Alive.
	progressPeriod = 30 * time.Second
)

// ErrNoTool is the cause if a program is not installed on the node.
var ErrNoTool = errors.New("is not installed on this node")

// packages are the distribution packages of the programs.
var packages = map[string]string{
	"mount.nfs": "nfs-common or nfs-utils", "mount.nfs4": "nfs-common or nfs-utils",
	"iscsiadm": "open-iscsi or iscsi-initiator-utils",
	"blkid":    "util-linux", "fsck": "util-linux", "mount": "util-linux or mount", "mkfs.ext4": "e2fsprogs",
	"mkfs.xfs":  "xfsprogs",
	"resize2fs": "e2fsprogs", "xfs_growfs": "xfsprogs", "btrfs": "btrfs-progs",
	"multipath": "multipath-tools or device-mapper-multipath",
}

// Find returns the path of a program. The error names the package to install. A name with a slash
// is rejected, since parts of it may come from users.
func (t Tools) Find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return "", fmt.Errorf("find program %q: that is a path", name)
	}
	path := t.Path
	if path == "" {
		path = usualPath
	}
	for _, dir := range filepath.SplitList(path) {
		full := filepath.Join(dir, name)
		if st, err := os.Stat(full); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return full, nil
		}
	}
	if p, ok := packages[name]; ok {
		return "", fmt.Errorf("%s %w: install %s", name, ErrNoTool, p)
	}
	return "", fmt.Errorf("%s %w", name, ErrNoTool)
}

// ToolError is the failure of a program.
type ToolError struct {
	Code   int // -1 if it did not exit by itself
	Output string
	err    error
}

func (e *ToolError) Error() string { return fmt.Sprintf("%v: %s", e.err, strings.TrimSpace(e.Output)) }
func (e *ToolError) Unwrap() error { return e.err }

// Outcome returns output and exit error of a failed program from an error of [Tools.Run].
func Outcome(err error) (output string, ended error) {
	var failed *ToolError
	if errors.As(err, &failed) {
		return failed.Output, failed.err
	}
	return "", err
}

// Run runs a program and returns its output.
func (t Tools) Run(ctx context.Context, name string, args ...string) (string, error) {
	full, err := t.Find(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, full, args...)
	cmd.WaitDelay = killTimeout
	if t.all {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	if t.held != nil {
		cmd.ExtraFiles = []*os.File{t.held}
	}
	cmd.Env = []string{"PATH=" + usualPath, "LC_ALL=C"}
	if t.Path != "" {
		cmd.Env[0] = "PATH=" + t.Path
	}
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err == nil {
		return text, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	code := -1
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	return text, fmt.Errorf("%s: %w", name, &ToolError{Code: code, Output: string(out), err: err})
}

// runLong is Run for a program that may take hours.
func (t Tools) runLong(ctx context.Context, name string, args ...string) (string, error) {
	if t.Alive == nil {
		return t.Run(ctx, name, args...)
	}
	tick := time.NewTicker(cmp.Or(t.Every, progressPeriod))
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	defer close(done)
	wg.Go(func() {
		for {
			select {
			case <-tick.C:
				t.Alive(ctx)
			case <-done:
				return
			}
		}
	})
	return t.Run(ctx, name, args...)
}

// Mount mounts source at target with mount(8). Network file systems need a mount helper, whose
// absence mount itself reports unintelligibly.
func (t Tools) Mount(ctx context.Context, kind, source, target string, options []string) error {
	if helper := "mount." + kind; kind == "nfs" || kind == "nfs4" {
		if _, err := t.Find(helper); err != nil {
			return err
		}
	}
	args := []string{"-t", kind}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	// Arguments after -- cannot be mistaken for options.
	all := slices.Concat(args, []string{"--", source, target})
	// The helper may retry for days, so it must not outlive the attempt.
	t.all = true
	_, err := t.Run(ctx, "mount", all...)
	var failed *ToolError
	if errors.As(err, &failed) {
		return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s",
			failed.err, strings.Join(append(args, source, target), " "), failed.Output)
	}
	return err
}

// defaultFS is the file system created if none is specified.
const defaultFS = "ext4"

// ErrOtherFS is the cause if a disk contains another file system than requested.
var ErrOtherFS = errors.New("it already contains")

// fsName matches names of file systems. The name becomes part of a program's name.
var fsName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// MountDisk mounts the file system of a disk. If the disk is known to be empty and the mount is not
// read-only, a file system is created first. The disk is locked meanwhile.
func (t Tools) MountDisk(ctx context.Context, disk, target, kind string, options []string) error {
	if on, err := IsPoint(target); on || err != nil {
		return err
	}
	if kind == "" {
		kind = defaultFS
	}
	if !fsName.MatchString(kind) {
		return fmt.Errorf("mount %s: %q is not the name of a file system", disk, kind)
	}
	readOnly := slices.Contains(options, "ro")
	owned, err := lockDisk(ctx, disk)
	if err != nil {
		return err
	}
	defer owned.Close()
	// Mount helpers may stay running and must not hold the lock.
	at := t
	at.held = owned
	have, err := at.contentOf(ctx, disk)
	if err != nil {
		_, ended := Outcome(err)
		return pod.ShowAs(fmt.Sprintf("failed to get disk format of disk %s: %v", disk, ended),
			fmt.Errorf("probe %s: %w", disk, err))
	}
	options = append(slices.Clone(options), "defaults")
	switch {
	case have == "" && readOnly:
		return fmt.Errorf("cannot mount unformatted disk %s as we are manipulating it in read-only mode", disk)
	case have == "":
		if err := at.format(ctx, disk, kind); err != nil {
			output, ended := Outcome(err)
			text := fmt.Sprintf(
				"format of disk %q failed: type:(%q) target:(%q) options:(%q) errcode:(%v) output:(%v) ",
				disk, kind, target, options, ended, output)
			return pod.ShowAs(text, err)
		}
	case have != kind:
		return fmt.Errorf("failed to mount the volume as %q, %w %s", kind, ErrOtherFS, have)
	case !readOnly:
		if err := at.check(ctx, disk); err != nil {
			return err
		}
	}
	return t.Mount(ctx, kind, disk, target, options)
}

// contentOf returns the file system on a disk, or that it contains something else, such as a
// partition table. It returns "" only if blkid succeeded and found nothing.
func (t Tools) contentOf(ctx context.Context, disk string) (string, error) {
	out, err := t.Run(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk)
	var failed *ToolError
	if errors.As(err, &failed) && failed.Code == 2 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	parts := ""
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch k {
		case "TYPE":
			return v, nil
		case "PTTYPE":
			parts = "unknown data, probably partitions"
		}
	}
	if parts == "" {
		return "", fmt.Errorf("blkid reported no type of %s: %q", disk, out)
	}
	return parts, nil
}

func (t Tools) format(ctx context.Context, disk, kind string) error {
	args := []string{disk}
	switch {
	case strings.HasPrefix(kind, "ext"):
		args = []string{"-F", "-m0", disk} // no blocks reserved for root
	case kind == "xfs":
		args = []string{"-f", disk}
	}
	if _, err := t.runLong(ctx, "mkfs."+kind, args...); err != nil {
		return fmt.Errorf("make file system on %s: %w", disk, err)
	}
	return nil
}

// Bits of the exit status of fsck.
const (
	fsckCorrected   = 1
	fsckUncorrected = 4
)

// check repairs those errors of a file system that fsck repairs without confirmation.
func (t Tools) check(ctx context.Context, disk string) error {
	_, err := t.runLong(ctx, "fsck", "-a", disk)
	var failed *ToolError
	switch {
	case errors.Is(err, ErrNoTool):
		return nil // as upstream; the kernel rejects what it cannot read
	case errors.As(err, &failed) && failed.Code == fsckUncorrected:
		return fmt.Errorf("'fsck' found errors on device %s but could not correct them: %s", disk, failed.Output)
	case errors.As(err, &failed) && failed.Code != fsckCorrected && failed.Code >= 0:
		return nil // fsck could not check
	case errors.As(err, &failed) && failed.Code == fsckCorrected:
		return nil
	}
	return err
}

// attrOf maps options to mount attributes that a bind mount can have.
var attrOf = map[string]uint64{
	"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
	"noexec":  unix.MOUNT_ATTR_NOEXEC,
	"noatime": unix.MOUNT_ATTR_NOATIME, "nodiratime": unix.MOUNT_ATTR_NODIRATIME, "relatime": unix.MOUNT_ATTR_RELATIME,
	"strictatime": unix.MOUNT_ATTR_STRICTATIME,
}

// BindAt bind mounts path at target with the given options, unless target is a mount point. The
// options are in force from the start. Symlinks in path are followed.
func BindAt(path, target string, options []string) error {
	if on, err := IsPoint(target); on || err != nil {
		return err
	}
	var attr unix.MountAttr
	for _, o := range options {
		a, ok := attrOf[o]
		if !ok && o != "rw" && o != "bind" && o != "defaults" {
			return fmt.Errorf("bind %s: option %q is not supported for bind mounts", path, o)
		}
		attr.Attr_set |= a
		if strings.HasSuffix(o, "atime") && o != "nodiratime" {
			attr.Attr_clr |= unix.MOUNT_ATTR__ATIME
		}
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: path, Err: err} // kernel before 5.2
	}
	defer unix.Close(tree)
	if attr != (unix.MountAttr{}) {
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("set options %v of %s: %w", options, target, err)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("bind %s at %s: %w", path, target, err)
	}
	return nil
}
