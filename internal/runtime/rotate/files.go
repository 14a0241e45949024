package rotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// directory is the directory of the files of one log. Accesses never leave the root of all logs.
type directory struct {
	root *os.Root
	self *os.File // root, for system calls that os.Root lacks
	live string
}

// open opens the directory of a log.
func open(root string, log Log) (*directory, error) {
	name, err := filepath.Rel(root, log.Path)
	if err != nil || !filepath.IsLocal(name) {
		return nil, fmt.Errorf("open log %s: path is not inside %s", log.Path, root)
	}
	all, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	defer all.Close()
	dir, err := all.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	self, err := dir.Open(".")
	if err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	return &directory{root: dir, self: self, live: filepath.Base(name)}, nil
}

func (d *directory) close() {
	_ = d.self.Close()
	_ = d.root.Close()
}

// files lists the directory.
func (d *directory) files() ([]string, error) {
	names, err := d.self.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	return names, nil
}

// clean removes files left by an agent that was killed during compression.
func (r *Rotator) clean(_ context.Context, log Log) error {
	d, err := open(r.cfg.Root, log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	files, err := d.files()
	if err != nil {
		return err
	}
	return d.remove(leftovers(files, d.live))
}

// rotate rotates a container's log. Failures to clean up old files are returned, but do not prevent
// the rotation.
func (r *Rotator) rotate(ctx context.Context, log Log) error {
	d, err := open(r.cfg.Root, log)
	if err != nil {
		return err
	}
	defer d.close()
	files, err := d.files()
	if err != nil {
		return err
	}
	plan := planCleanup(files, d.live, int(r.files.Load()))
	errs := []error{r.renameAndReopen(ctx, log, d, nextName(files, d.live, r.cfg.Now())), d.remove(plan.Remove)}
	for _, name := range plan.Compress {
		err := d.compress(ctx, name, r.size.Load())
		if errors.Is(err, errLogTooLarge) {
			break // the next rotation is more urgent; it compresses the rest
		}
		errs = append(errs, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// errLogTooLarge aborts a compression because the live file exceeds the limit again. A container that
// writes that fast must be rotated first.
var errLogTooLarge = errors.New("live log exceeds the limit again")

// renameAndReopen renames the live file to old and has the runtime create a new one.
func (r *Rotator) renameAndReopen(ctx context.Context, log Log, d *directory, old string) error {
	if err := d.renameNoReplace(d.live, old); err != nil {
		return fmt.Errorf("rename log: %w", err)
	}
	err := r.reopen(ctx, log)
	if err == nil {
		return nil
	}
	if undo := d.renameNoReplace(old, d.live); undo != nil && !errors.Is(undo, fs.ErrExist) {
		return fmt.Errorf("restore name of log: %w", errors.Join(undo, err))
	}
	// If there is a new file, the runtime has created it despite the error.
	return fmt.Errorf("reopen log: %w", err)
}

// renameNoReplace renames a file without overwriting an existing one.
func (d *directory) renameNoReplace(from, to string) error {
	fd := int(d.self.Fd())
	err := unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// Not all file systems support RENAME_NOREPLACE: ZFS before 2.2, NFS and most FUSE ones do
		// not. Creating a hard link never overwrites.
		if err = unix.Linkat(fd, from, fd, to, 0); err == nil {
			err = unix.Unlinkat(fd, from, 0)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (d *directory) remove(names []string) error {
	var errs []error
	for _, name := range names {
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove old log: %w", err))
		}
	}
	return errors.Join(errs...)
}

// compress replaces a rotated file by a compressed one with the same modification time, by which
// readers order files. It aborts when the live file exceeds limit.
func (d *directory) compress(ctx context.Context, name string, limit int64) (err error) {
	in, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	defer in.Close()
	fi, err := in.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	tmp := name + unfinishedSuffix
	out, err := d.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm())
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	err = pack(out, abortable{ctx, in, d, limit})
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.root.Chtimes(tmp, fi.ModTime(), fi.ModTime())
	}
	if err == nil {
		err = d.root.Rename(tmp, name+compressedSuffix)
	}
	if err != nil {
		return fmt.Errorf("compress log %s: %w", name, errors.Join(err, d.remove([]string{tmp})))
	}
	return d.remove([]string{name})
}

// pack compresses in to out and syncs it, since in is about to be removed.
func pack(out *os.File, in io.Reader) error {
	z := gzip.NewWriter(out)
	if _, err := io.CopyBuffer(z, in, make([]byte, chunk)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Sync()
}

// chunk is the amount read between two checks for abortion.
const chunk = 256 << 10

// abortable is a reader that fails when its context ends or the live file exceeds the limit.
type abortable struct {
	ctx context.Context
	io.Reader
	beside *directory
	limit  int64
}

func (p abortable) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if fi, err := p.beside.root.Lstat(p.beside.live); err == nil && fi.Size() >= p.limit {
		return 0, errLogTooLarge
	}
	return p.Reader.Read(b)
}
