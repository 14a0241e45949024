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

// Tools runs the machine's own programs for what file systems ask for: mounting
// those with a helper of their own, looking at disks, making file systems. All of
// its calls end soon after ctx does, if the kernel lets the program end.
type Tools struct {
	// Path is where programs are looked for, as in $PATH; empty means where they
	// usually are.
	Path string
	// Alive is called now and then while a file system is made or mended: that ends by
	// itself, and may take longer than whoever wants it has. It may be nil.
	Alive func(context.Context)
	// Every is how often; zero for as often as usual.
	Every time.Duration

	held *os.File // that programs keep open as long as they run
	all  bool     // what a program started ends with it, when it is told to end
}

const (
	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// dying is how long a program that was told to end is waited for.
	dying = 5 * time.Second
	// usualEvery is how often Alive is called.
	usualEvery = 30 * time.Second
)

// ErrNoTool is the cause where a program is not installed on the node.
var ErrNoTool = errors.New("is not installed on this node")

// packages are where programs come from, for whoever has to install them.
var packages = map[string]string{
	"mount.nfs": "nfs-common or nfs-utils", "mount.nfs4": "nfs-common or nfs-utils", "iscsiadm": "open-iscsi or iscsi-initiator-utils",
	"blkid": "util-linux", "fsck": "util-linux", "mount": "util-linux or mount", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs",
	"resize2fs": "e2fsprogs", "xfs_growfs": "xfsprogs", "btrfs": "btrfs-progs",
	"multipath": "multipath-tools or device-mapper-multipath",
}

// Find looks for a program. The error names what to install. A name that leads out
// of the directories is nobody's: parts of it may be a user's words.
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

// ToolError is a program that failed.
type ToolError struct {
	Code   int // -1 if it did not end by itself
	Output string
	err    error
}

func (e *ToolError) Error() string { return fmt.Sprintf("%v: %s", e.err, strings.TrimSpace(e.Output)) }
func (e *ToolError) Unwrap() error { return e.err }

// Outcome is what a program that failed has printed, and how it ended, by the error of [Tools.Run].
func Outcome(err error) (output string, ended error) {
	var failed *ToolError
	if errors.As(err, &failed) {
		return failed.Output, failed.err
	}
	return "", err
}

// Run runs a program and returns what it printed.
func (t Tools) Run(ctx context.Context, name string, args ...string) (string, error) {
	full, err := t.Find(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, full, args...)
	cmd.WaitDelay = dying
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
	tick := time.NewTicker(cmp.Or(t.Every, usualEvery))
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

// Mount mounts source at target with mount(8). A file system of the network needs
// a helper of its own, without which the message of mount would be a riddle.
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
	// What stands after the options cannot be taken for one.
	all := slices.Concat(args, []string{"--", source, target})
	// The helper may try for days: one more would be left at each attempt.
	t.all = true
	_, err := t.Run(ctx, "mount", all...)
	var failed *ToolError
	if errors.As(err, &failed) {
		return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s",
			failed.err, strings.Join(append(args, source, target), " "), failed.Output)
	}
	return err
}

// defaultFS is what a disk gets if nobody says what.
const defaultFS = "ext4"

// ErrOtherFS is the cause when a disk has another file system than is asked for.
var ErrOtherFS = errors.New("it already contains")

// fsName is what file systems are called. The name becomes part of that of a program.
var fsName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// MountDisk mounts the file system on a disk. A disk that has none is given one,
// unless it is only to be read: nothing at all must be known to be on it. Nobody
// else who asks this way works on the disk meanwhile.
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
	owned, err := own(ctx, disk)
	if err != nil {
		return err
	}
	defer owned.Close()
	// Mounting starts programs that stay, which must not own the disk.
	at := t
	at.held = owned
	have, err := at.contentOf(ctx, disk)
	if err != nil {
		_, ended := Outcome(err)
		return pod.ShowAs(fmt.Sprintf("failed to get disk format of disk %s: %v", disk, ended),
			fmt.Errorf("look at what is on %s: %w", disk, err))
	}
	options = append(slices.Clone(options), "defaults")
	switch {
	case have == "" && readOnly:
		return fmt.Errorf("cannot mount unformatted disk %s as we are manipulating it in read-only mode", disk)
	case have == "":
		if err := at.format(ctx, disk, kind); err != nil {
			output, ended := Outcome(err)
			text := fmt.Sprintf("format of disk %q failed: type:(%q) target:(%q) options:(%q) errcode:(%v) output:(%v) ",
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

// contentOf tells what file system is on a disk, or that a table of partitions
// is. It is empty only if blkid looked and saw nothing.
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
		return "", fmt.Errorf("blkid did not say what is on %s: %q", disk, out)
	}
	return parts, nil
}

func (t Tools) format(ctx context.Context, disk, kind string) error {
	args := []string{disk}
	switch {
	case strings.HasPrefix(kind, "ext"):
		args = []string{"-F", "-m0", disk} // no blocks that only root may fill
	case kind == "xfs":
		args = []string{"-f", disk}
	}
	if _, err := t.runLong(ctx, "mkfs."+kind, args...); err != nil {
		return fmt.Errorf("make file system on %s: %w", disk, err)
	}
	return nil
}

// What fsck says by its exit status.
const (
	fsckCorrected   = 1
	fsckUncorrected = 4
)

// check has errors of a file system corrected that can be without asking.
func (t Tools) check(ctx context.Context, disk string) error {
	_, err := t.runLong(ctx, "fsck", "-a", disk)
	var failed *ToolError
	switch {
	case errors.Is(err, ErrNoTool):
		return nil // as upstream has it; the kernel refuses what it cannot read
	case errors.As(err, &failed) && failed.Code == fsckUncorrected:
		return fmt.Errorf("'fsck' found errors on device %s but could not correct them: %s", disk, failed.Output)
	case errors.As(err, &failed) && failed.Code != fsckCorrected && failed.Code >= 0:
		return nil // it could not look
	case errors.As(err, &failed) && failed.Code == fsckCorrected:
		return nil
	}
	return err
}

// attrOf are the options that a bind mount can have of its own.
var attrOf = map[string]uint64{
	"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV, "noexec": unix.MOUNT_ATTR_NOEXEC,
	"noatime": unix.MOUNT_ATTR_NOATIME, "nodiratime": unix.MOUNT_ATTR_NODIRATIME, "relatime": unix.MOUNT_ATTR_RELATIME, "strictatime": unix.MOUNT_ATTR_STRICTATIME,
}

// BindAt mounts a path at target, unless something is mounted there, with options
// of its own; it has them from the moment it is there. Symlinks in the path are
// followed.
func BindAt(path, target string, options []string) error {
	if on, err := IsPoint(target); on || err != nil {
		return err
	}
	var attr unix.MountAttr
	for _, o := range options {
		a, ok := attrOf[o]
		if !ok && o != "rw" && o != "bind" && o != "defaults" {
			return fmt.Errorf("bind %s: option %q cannot be had for a part of a file system", path, o)
		}
		attr.Attr_set |= a
		if strings.HasSuffix(o, "atime") && o != "nodiratime" {
			attr.Attr_clr |= unix.MOUNT_ATTR__ATIME
		}
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: path, Err: err} // before 5.2 there is none
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
