package mount

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"keelson/internal/pods/panics"
)

// walkers is the number of goroutines that walk one tree. Disks and networks handle several
// requests concurrently; more gain little.
func walkers() int { return min(8, 2*runtime.GOMAXPROCS(0)) }

// walk traverses a tree that may change concurrently. Each directory is opened by its path from the
// root without following symlinks, so that no more descriptors are open than there are walkers,
// however deep the tree is.
type walk struct {
	ctx   context.Context
	root  string
	fd    int           // of the root
	how   uint64        // additional resolve flags
	hands chan struct{} // one slot per additional walker
	// visit is called for every object except the root, concurrently.
	visit func(dir int, path, name string) error

	wg  sync.WaitGroup
	mu  sync.Mutex
	err error // the first error
}

// run traverses the tree until it is complete, the first error, or the end of ctx.
func (w *walk) run() error {
	w.dir(".")
	w.wg.Wait()
	return w.err
}

func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *walk) over() bool {
	if err := w.ctx.Err(); err != nil {
		w.fail(err)
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// share runs fn on another walker if one is free, otherwise on this one.
func (w *walk) share(fn func()) {
	select {
	case w.hands <- struct{}{}:
		w.wg.Go(func() {
			defer func() { <-w.hands }()
			if err := panics.Catch(func() error { fn(); return nil }); err != nil {
				w.fail(err)
			}
		})
	default:
		fn()
	}
}

// dir visits the entries of a directory and descends. The directory itself was visited with its
// parent.
func (w *walk) dir(rel string) {
	if w.over() {
		return
	}
	for _, name := range w.entries(rel) {
		sub := filepath.Join(rel, name)
		w.share(func() { w.dir(sub) })
	}
}

// batch is the number of entries of a directory that are handled together.
const batch = 512

// entries visits the entries of a directory and returns the directories among them.
func (w *walk) entries(rel string) (dirs []string) {
	path := filepath.Join(w.root, rel)
	fd, err := openDir(w.fd, rel, w.how)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // removed or replaced concurrently
	case errors.Is(err, unix.EXDEV) && w.how&unix.RESOLVE_NO_XDEV != 0:
		return nil // a mount point
	}
	if err != nil {
		w.fail(&os.PathError{Op: "open", Path: path, Err: err})
		return nil
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	var others sync.WaitGroup // using the same descriptor
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

func (w *walk) each(dir int, path string, list []fs.DirEntry) {
	for _, e := range list {
		if err := w.visit(dir, path, e.Name()); err != nil {
			w.fail(err)
			return
		}
	}
}

// maxOpened bounds the length of a path that is resolved at once: the kernel's limit is 4096 bytes,
// and containers can nest deeper.
const maxOpened = 2048

// openDir opens a directory beneath an open one for reading, without following symlinks.
func openDir(root int, rel string, how uint64) (int, error) {
	at := root
	for len(rel) > maxOpened {
		cut := strings.LastIndexByte(rel[:maxOpened], '/') // a name has at most 255 bytes
		next, err := openat2(at, rel[:cut], unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW,
			unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|how)
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
	fd, err := openat2(at, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|how)
	if !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// Kernel before 5.6.
	dir, err := openStepwise(at, rel)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
