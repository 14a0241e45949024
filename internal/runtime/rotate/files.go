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

// directory is where the files of one log are. Names in it are plain names, and
// following one never leads out of the directory of all logs.
type directory struct {
	root *os.Root
	self *os.File // root, for calls that os.Root does not have
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

// clean removes what an agent left that died while it compressed.
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

// rotate gives a container a new log. Trouble with old files is told, but does
// not keep the live one growing.
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
	plan := tidy(files, d.live, int(r.files.Load()))
	errs := []error{r.turn(ctx, log, d, nextName(files, d.live, r.cfg.Now())), d.remove(plan.Remove)}
	for _, name := range plan.Compress {
		err := d.compress(ctx, name, r.size.Load())
		if errors.Is(err, errStorm) {
			break // the next rotation is more urgent, and compresses what is left then
		}
		errs = append(errs, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// errStorm ends a compression during which the live log has become too long: a
// container that writes faster than that must not fill the disk meanwhile.
var errStorm = errors.New("the live log is too long again")

// turn renames the live log to old and has the runtime make a new one.
func (r *Rotator) turn(ctx context.Context, log Log, d *directory, old string) error {
	if err := d.move(d.live, old); err != nil {
		return fmt.Errorf("rename log: %w", err)
	}
	err := r.reopen(ctx, log)
	if err == nil {
		return nil
	}
	if undo := d.move(old, d.live); undo != nil && !errors.Is(undo, fs.ErrExist) {
		return fmt.Errorf("give log its name back: %w", errors.Join(undo, err))
	}
	// If there is a new log after all, the runtime made it and was late to say so.
	return fmt.Errorf("reopen log: %w", err)
}

// move renames a file to a name that must be free: whatever had that name would
// lose its lines.
func (d *directory) move(from, to string) error {
	fd := int(d.self.Fd())
	err := unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// Not every file system can be asked for that: ZFS before 2.2, NFS and most
		// of FUSE cannot. A second name is free or refused everywhere.
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

// compress replaces a rotated file by a compressed one. Both say the same about
// when the log was written last: readers tell by it which file comes after which.
// It gives up when the live log grows beyond limit.
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
	err = pack(out, patient{ctx, in, d, limit})
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

// pack writes compressed and to the disk: its source is about to be removed.
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

// chunk is read between two looks at whether to go on.
const chunk = 256 << 10

// patient stops reading when its context ends, or the live log is too long.
type patient struct {
	ctx context.Context
	io.Reader
	beside *directory
	limit  int64
}

func (p patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if fi, err := p.beside.root.Lstat(p.beside.live); err == nil && fi.Size() >= p.limit {
		return 0, errStorm
	}
	return p.Reader.Read(b)
}
