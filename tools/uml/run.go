package uml

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"keelson/test/parts"
)

// Config describes how a program is run.
type Config struct {
	Guest  parts.Guest
	Output io.Writer // what the program prints
	Dir    string    // where it runs
	Env    []string
	Share  []string // folders that it can write to; they are made if they are not there
	Memory string   // of the guest, such as "3G"
	Disk   int64    // bytes of the guest's disk, which takes up what is written to it
}

// Folder creates the folder of a run, in which the caller may put files for the program. It returns a function that
// removes the folder. Before, it removes folders of runs that were killed.
func Folder() (dir string, remove func(), err error) {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return "", nil, fmt.Errorf("make folder of the guest: %w", err)
	}
	for _, o := range old {
		if f, err := hold(o); err == nil {
			err = os.RemoveAll(o)
			f.Close()
			if err != nil {
				return "", nil, fmt.Errorf("remove folder of an earlier guest: %w", err)
			}
		}
	}
	dir, err = os.MkdirTemp("", folderPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("make folder of the guest: %w", err)
	}
	f, err := hold(dir)
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("make folder of the guest: %w", err)
	}
	return dir, func() { os.RemoveAll(dir); f.Close() }, nil
}

// hold locks a folder that is in use, until the returned file is closed.
func hold(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Run boots a guest in a folder made by Folder, runs the program there, and returns its exit status. An error means
// that the guest itself failed.
func Run(ctx context.Context, cfg Config, dir, program string, args ...string) (int, error) {
	if err := furnish(ctx, cfg, dir, program, args); err != nil {
		return 0, fmt.Errorf("prepare guest: %w", err)
	}
	console, err := boot(ctx, cfg, dir)
	status, readErr := os.ReadFile(filepath.Join(dir, statusFile))
	if errors.Is(readErr, fs.ErrNotExist) {
		return 0, fmt.Errorf("run guest: it ended before the program did: %v\n%s", errors.Join(context.Cause(ctx), err),
			console)
	}
	if readErr != nil {
		return 0, fmt.Errorf("run guest: %w", readErr)
	}
	text := strings.TrimSpace(string(status))
	code, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("start program in the guest: %s\n%s", text, console)
	}
	return code, nil
}

// furnish writes the job, compiles the shim and creates the disk.
func furnish(ctx context.Context, cfg Config, dir, program string, args []string) error {
	for _, s := range cfg.Share {
		if err := os.MkdirAll(s, 0o755); err != nil {
			return err
		}
	}
	data, err := json.Marshal(job{
		Program: program, Args: args, Dir: cfg.Dir, Env: cfg.Env,
		Share: append([]string{dir}, cfg.Share...), Tree: cfg.Guest.Tree, Modules: cfg.Guest.Modules,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, jobFile), data, 0o644); err != nil {
		return err
	}
	if err := compileShim(ctx, dir); err != nil {
		return err
	}
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(disk, cfg.Disk); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/usr/sbin/mkfs.ext4", // PATH may not contain this folder
		"-q", "-F", disk)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make disk: %w: %s", err, out)
	}
	return nil
}

// boot starts the kernel and returns its console output when it has ended. The kernel is the first process of a PID
// namespace and is killed when this thread ends, so that no process of the guest is left.
func boot(ctx context.Context, cfg Config, dir string) (console string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	memory := dir
	if _, err := os.Stat("/dev/shm"); err == nil {
		memory = "/dev/shm" // the guest's memory is an unlinked file
	}
	out, outside, err := os.Pipe()
	if err != nil {
		return "", err
	}
	var logged bytes.Buffer
	cmd := exec.CommandContext(ctx, cfg.Guest.Kernel,
		"umid=guest", "uml_dir="+dir, "mem="+cfg.Memory, "ubd0="+filepath.Join(dir, "disk"),
		"rootfstype=hostfs", "rootflags=/", "ro", "init="+self, folderEnv+"="+dir,
		"con=null", "con0=null,fd:1", "ssl=null", "ssl0=null,fd:3", "loglevel=4")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "TMPDIR=" + memory, "PATH=/usr/bin:/bin",
		"LD_PRELOAD=" + filepath.Join(dir, shimFile)}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &logged, &logged, []*os.File{outside}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setsid: true}
	err = cmd.Start()
	outside.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		// The reader of the output may have ended. The end of the guest is awaited all the same.
		_, _ = io.Copy(cfg.Output, out)
	}()
	if err == nil {
		err = cmd.Wait()
	}
	<-copied
	out.Close()
	return lastLines(strings.ReplaceAll(logged.String(), "\r", ""), 60), err
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
