package mount

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Permission bits that a volume's group is given: to read or to write files, and
// for directories to enter them and to hand the group on to what is made inside.
const (
	groupRead  = 0o440
	groupWrite = 0o660
	groupEnter = 0o110 | unix.S_ISGID
)

// Grant gives a tree to a group: every file and directory belongs to it and
// lets it read, and write unless ReadOnly. Symlinks change their group and are
// not followed.
type Grant struct {
	GID      int
	ReadOnly bool
	// Done counts what was looked at, for whoever wants to tell of progress. It
	// may be nil.
	Done *atomic.Int64
}

// SetGroup is Grant.Apply without an end and without telling of progress.
func SetGroup(root string, gid int, readOnly bool) error {
	return Grant{GID: gid, ReadOnly: readOnly}.Apply(context.Background(), root)
}

// HasGroup reports whether root itself is as SetGroup leaves it, from which the
// policy OnRootMismatch concludes that all below it is.
func HasGroup(root string, gid int, readOnly bool) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return false, &os.PathError{Op: "lstat", Path: root, Err: err}
	}
	return Grant{GID: gid, ReadOnly: readOnly}.holds(&st), nil
}

// bits are those that the group is given of an object.
func (g Grant) bits(mode uint32) uint32 {
	bits := uint32(groupWrite)
	if g.ReadOnly {
		bits = groupRead
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		bits |= groupEnter
	}
	return bits
}

// holds reports whether an object is as it should be.
func (g Grant) holds(st *unix.Stat_t) bool {
	if int(st.Gid) != g.GID {
		return false
	}
	bits := g.bits(st.Mode)
	return st.Mode&unix.S_IFMT == unix.S_IFLNK || st.Mode&bits == bits
}

// Apply goes through the tree, in parallel, and ends early with ctx. What has
// the group already is looked at and left alone.
//
// The root is changed last: as long as it lacks the group, nobody takes the tree
// for finished, whatever became of whoever began.
func (g Grant) Apply(ctx context.Context, root string) error {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: root, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		w := grantWalk{Grant: g, ctx: ctx, root: root, fd: fd, hands: make(chan struct{}, walkers())}
		w.dir(".")
		w.wg.Wait()
		if w.err != nil {
			return w.err
		}
	}
	return g.give(fd, root)
}

// walkers is how many goroutines help with one tree. File systems that sit on a
// disk or a network have several requests under way; more gain little.
func walkers() int { return min(8, 2*runtime.GOMAXPROCS(0)) }

// give changes an object that is open, if it needs to.
func (g Grant) give(fd int, path string) error {
	if g.Done != nil {
		g.Done.Add(1)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if g.holds(&st) {
		return nil
	}
	if int(st.Gid) != g.GID {
		if err := unix.Fchownat(fd, "", -1, g.GID, unix.AT_EMPTY_PATH); err != nil {
			return &os.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	// The change of owner may have cleared set-id bits, so they are set anew.
	have, want := st.Mode&^unix.S_IFMT, st.Mode&^unix.S_IFMT|g.bits(st.Mode)
	if want != have || int(st.Gid) != g.GID && want&(unix.S_ISUID|unix.S_ISGID) != 0 {
		if err := chmodOpen(fd, want); err != nil {
			return &os.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	return nil
}

// chmodOpen changes the mode of what an O_PATH descriptor stands for. Kernels
// before 6.6 know no call for that, but /proc does.
func chmodOpen(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
	}
	return err
}

// grantWalk is one walk through a tree. Each directory is opened by its path
// from the root, through no symlink, so that no more descriptors are held than
// there are walkers, however deep the tree is.
type grantWalk struct {
	Grant
	ctx   context.Context
	root  string
	fd    int           // of the root
	hands chan struct{} // one for each walker at work beside the first
	wg    sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

func (w *grantWalk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *grantWalk) over() bool {
	if err := w.ctx.Err(); err != nil {
		w.fail(err)
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// share has fn done by another walker if one is free, else by this one.
func (w *grantWalk) share(fn func()) {
	select {
	case w.hands <- struct{}{}:
		w.wg.Go(func() {
			defer func() { <-w.hands }()
			fn()
		})
	default:
		fn()
	}
}

// dir goes through a directory and then through those in it. The directory
// itself was seen to by whoever goes through the one above.
func (w *grantWalk) dir(rel string) {
	if w.over() {
		return
	}
	for _, name := range w.entries(rel) {
		sub := filepath.Join(rel, name)
		w.share(func() { w.dir(sub) })
	}
}

// batch is how many entries of a directory are handed out at once.
const batch = 512

// entries sees to what is in a directory, and names the directories among it.
func (w *grantWalk) entries(rel string) (dirs []string) {
	path := filepath.Join(w.root, rel)
	fd, err := openDir(w.fd, rel)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // removed or replaced by another user of the volume
	}
	if err != nil {
		w.fail(&os.PathError{Op: "open", Path: path, Err: err})
		return nil
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	var others sync.WaitGroup // who use the descriptor too
	defer others.Wait()
	for !w.over() {
		list, err := dir.ReadDir(batch)
		if errors.Is(err, io.EOF) {
			return dirs
		}
		if err != nil {
			w.fail(err)
			return dirs
		}
		for _, e := range list {
			if e.IsDir() {
				dirs = append(dirs, e.Name())
			}
		}
		others.Add(1)
		w.share(func() { defer others.Done(); w.each(fd, path, list) })
	}
	return dirs
}

func (w *grantWalk) each(dir int, path string, list []fs.DirEntry) {
	for _, e := range list {
		if err := w.entry(dir, path, e.Name()); err != nil {
			w.fail(err)
			return
		}
	}
}

// entry sees to one object. Most often it is right already, which one call
// tells; else it is opened, so that what is changed is what was looked at.
func (w *grantWalk) entry(dir int, path, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && w.holds(&st) {
		if w.Done != nil {
			w.Done.Add(1)
		}
		return nil
	}
	if err == nil {
		var fd int
		if fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(fd)
			return w.give(fd, filepath.Join(path, name))
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // removed by another user of the volume
	}
	return &os.PathError{Op: "open", Path: filepath.Join(path, name), Err: err}
}

// maxOpened is how much of a path is resolved at once: the kernel takes 4096
// bytes, and containers can nest deeper.
const maxOpened = 2048

// openDir opens a directory below an open one for reading, through no symlink.
func openDir(root int, rel string) (int, error) {
	at := root
	for len(rel) > maxOpened {
		cut := strings.LastIndexByte(rel[:maxOpened], '/') // a name has at most 255 bytes
		next, err := openat2(at, rel[:cut], unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
		if errors.Is(err, unix.ENOSYS) {
			next, err = openStepwise(at, rel[:cut])
		}
		if at != root {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, rel = next, rel[cut+1:]
	}
	if at != root {
		defer unix.Close(at)
	}
	fd, err := openat2(at, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// Kernels before 5.6.
	dir, err := openStepwise(at, rel)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
