package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// demolish removes a rig, using only its ledger. It can be repeated. After a failure it continues and removes what it
// can. If something could not be removed, it keeps the folder with the ledger.
func (b *book) demolish(ctx context.Context, log *slog.Logger) error {
	b.mu.Lock()
	pg, live := b.page, b.live
	b.mu.Unlock()
	dir, name := b.dir(), pg.Number.name()
	logs := filepath.Join(dir, "logs")
	find := func(e entry) *process {
		if p, ok := live[e.Name]; ok && p.who == e.who {
			return p
		}
		return adopt(e, logs)
	}
	end := func(kind string, grace time.Duration) {
		for _, e := range slices.Backward(pg.Processes) {
			if e.Kind == kind {
				find(e).stop(grace)
			}
		}
	}

	// A program that starts others is ended before them.
	end("kubelet", 15*time.Second)
	// The control plane has no data to save, so it is killed.
	end("control", 0)
	socket := filepath.Join(dir, socketName)
	if _, err := os.Stat(socket); err == nil {
		if err := emptyRuntime(ctx, socket); err != nil {
			log.Info("the runtime could not remove its pods, continuing by force", "rig", name, "err", err)
		}
	}
	end("runtime", 10*time.Second)

	stray := shimAddresses(dir)
	errs := []error{
		killStrays(dir),
		removeCgroup(pg.Number),
		unmountAll(dir),
		removeBridge(pg.Number.bridge()),
		removeRules(ctx, pg.Path, name, pg.NoChains && b.last()),
		removeFiles(append(stray, networkResults(name)...)...),
		removeFiles(linksInto(containerLinks, dir)...),
	}
	if b.last() {
		errs = append(errs, restoreKernel(procSys, pg.Kernel))
		if slices.Contains(pg.Absent, devicePlugins) {
			errs = append(errs,
				removeFiles(filepath.Join(devicePlugins, "kubelet.sock"),
					filepath.Join(devicePlugins, "kubelet_internal_checkpoint")))
		}
		errs = append(errs, removeEmpty(pg.Absent))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The ledger is removed last: as long as it exists, removal can be repeated.
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() != ledger {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(dir)
}

// last returns whether no other rig exists.
func (b *book) last() bool {
	for _, o := range books() {
		if o.page.Number != b.page.Number {
			return false
		}
	}
	return true
}

// killStrays kills the processes that a dead containerd left. First the shims, which have its socket as an argument,
// then the containers, whose root lies in the rig's folder.
func killStrays(dir string) error {
	socket := []byte("\x00-address\x00" + filepath.Join(dir, socketName) + "\x00")
	shim := func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && bytes.Contains(line, socket)
	}
	contained := func(pid int) bool {
		f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			return false // it has ended
		}
		defer f.Close()
		inside, err := mountinfo.GetMountsFromReader(f, func(m *mountinfo.Info) (skip, stop bool) {
			return m.Mountpoint != "/" || !strings.Contains(m.Root+","+m.VFSOptions, dir+"/"), false
		})
		return err == nil && len(inside) > 0
	}
	for _, which := range []func(int) bool{shim, contained} {
		for range 10 { // a killed process may just have started another one
			left := processes(which)
			if len(left) == 0 {
				break
			}
			for _, w := range left {
				(&process{who: w}).signal(unix.SIGKILL)
				if err := await(w); err != nil {
					return fmt.Errorf("end process %d: %w", w.Pid, err)
				}
			}
		}
		if left := processes(which); len(left) > 0 {
			return fmt.Errorf("end processes of %s: %d are still there", dir, len(left))
		}
	}
	return nil
}

// unmountAll detaches every mount under a folder, the deepest first.
func unmountAll(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int { return len(b.Mountpoint) - len(a.Mountpoint) })
	var errs []error
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
			!errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}

// shimAddresses lists the socket files of shims outside the folder. Releases of containerd before 2.4 use such files.
// The bundle of each shim has a file with its address.
func shimAddresses(dir string) []string {
	var out []string
	for _, f := range named(filepath.Join(dir, "containerd/state"), "io.containerd.runtime.v2.task/*/*/address") {
		if data, err := os.ReadFile(f); err == nil {
			if s, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "unix://"); ok &&
				strings.HasPrefix(s, shimSockets) {
				out = append(out, s)
			}
		}
	}
	return out
}

// networkResults lists the files that the CNI library keeps for a network's pods: <network>-<sandbox>-eth0, and those
// for the loopback device of the same sandboxes.
func networkResults(network string) []string {
	out := named(cniResults, network+"-*")
	for _, f := range out {
		id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), network+"-"), "-eth0")
		out = append(out, filepath.Join(cniResults, "cni-loopback-"+id+"-lo"))
	}
	return out
}

// linksInto lists the symbolic links of a folder that point into another folder.
func linksInto(dir, into string) []string {
	var out []string
	for _, l := range named(dir, "*") {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, into+"/") {
			out = append(out, l)
		}
	}
	return out
}

func named(dir, pattern string) []string {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil // the only error is a bad pattern, and the patterns are constants
	}
	return found
}

func removeFiles(files ...string) error {
	var errs []error
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeEmpty removes those of the folders that are empty.
func removeEmpty(dirs []string) error {
	for _, d := range dirs {
		err := os.Remove(d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return nil
}
