package logs

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// place is the path of a log file, relative to a directory that must not be left.
type place struct {
	root   *os.Root
	name   string // relative to root
	dir    string // directory of the file, for watching it
	docker bool   // written and rotated by Docker
}

// dockerFile matches the path of a container log written by Docker.
var dockerFile = regexp.MustCompile(`^/(?:.+/)?([0-9a-f]{64})/([0-9a-f]{64})-json\.log$`)

// at opens the place of a log. An empty root stands for the directory three levels above the file:
// <root>/<pod>/<container>/<n>.log.
func at(root, path string) (*place, error) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("open log %s: path is not absolute", path)
	}
	if root == "" {
		root = filepath.Dir(filepath.Dir(filepath.Dir(path)))
	}
	name, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(name) {
		return nil, fmt.Errorf("open log %s: path is not inside %s", path, root)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	p := &place{root: r, name: name, dir: filepath.Dir(path)}
	if target, err := r.Readlink(name); err == nil && isDockerFile(target) {
		p.close()
		return dockerPlace(target)
	}
	return p, nil
}

func isDockerFile(path string) bool {
	id := dockerFile.FindStringSubmatch(path)
	return id != nil && id[1] == id[2] && filepath.Clean(path) == path
}

// dockerPlace opens the place of a Docker log to which cri-dockerd made a symlink. The log itself
// must not be a symlink.
func dockerPlace(path string) (*place, error) {
	r, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	p := &place{root: r, name: filepath.Base(path), dir: filepath.Dir(path), docker: true}
	if _, err := r.Readlink(p.name); err == nil {
		p.close()
		return nil, fmt.Errorf("open log %s: it is a symlink", path)
	}
	return p, nil
}

func (p *place) close() { _ = p.root.Close() }

// open opens the live file.
func (p *place) open() (*os.File, error) { return p.openName(p.name) }

// openName never blocks: a FIFO is opened without a writer and then rejected.
func (p *place) openName(name string) (*os.File, error) {
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("open log %s: not a regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// after opens the file that follows cur after rotations: the live one, or one that was itself
// rotated since. It returns nil if cur is the live file, or if the live file does not exist yet.
func (p *place) after(cur *os.File) (*os.File, error) {
	have, err := cur.Stat()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	// The live file is opened before the others are listed, so that all files between it and cur
	// have their final names.
	live, err := p.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	next, err := p.between(have, live)
	if next != live {
		_ = live.Close()
	}
	return next, err
}

// between opens the first file after cur. It returns live if there is none between, and nil if cur
// is live.
func (p *place) between(cur fs.FileInfo, live *os.File) (*os.File, error) {
	fi, err := live.Stat()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	if os.SameFile(cur, fi) {
		return nil, nil
	}
	names, err := p.rotated()
	if err != nil {
		return nil, err
	}
	for _, name := range names[p.afterFile(names, cur):] {
		f, err := p.openName(name)
		if errors.Is(err, fs.ErrNotExist) && !isCompressed(name) {
			f, err = p.openName(name + compressed) // compressed since it was listed
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return f, err
	}
	return live, nil
}

// afterFile returns the index of the first rotated file that was written after cur. If cur was
// compressed or removed, modification times are compared; a compressed file has that of its source.
func (p *place) afterFile(names []string, cur fs.FileInfo) int {
	next := len(names)
	for i, name := range names {
		fi, err := p.root.Stat(name)
		if err != nil {
			continue
		}
		if os.SameFile(cur, fi) {
			return i + 1
		}
		if fi.ModTime().After(cur.ModTime()) {
			next = min(next, i)
		}
	}
	return next
}

// rotated lists the rotated files of the log, oldest first. Their names end in the time of the
// rotation, and in another suffix if compressed. Docker renumbers its files at each rotation, so
// they are not used.
func (p *place) rotated() ([]string, error) {
	if p.docker {
		return nil, nil
	}
	d, err := p.root.Open(filepath.Dir(p.name))
	if err != nil {
		return nil, fmt.Errorf("list rotated logs: %w", err)
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list rotated logs: %w", err)
	}
	var names []string
	for _, n := range all {
		if rest, ok := strings.CutPrefix(n, filepath.Base(p.name)+"."); ok && rest != "" &&
			!strings.Contains(strings.TrimSuffix(rest, compressed), ".") {
			names = append(names, filepath.Join(filepath.Dir(p.name), n))
		}
	}
	slices.Sort(names)
	// During compression both files exist.
	return slices.CompactFunc(names, func(plain, other string) bool { return other == plain+compressed }), nil
}

// compressed is the suffix of compressed files.
const compressed = ".gz"

func isCompressed(name string) bool { return strings.HasSuffix(name, compressed) }

// content returns a reader from an offset. A compressed file is read from its beginning.
func content(f *os.File, offset int64) (io.Reader, error) {
	if !isCompressed(f.Name()) {
		return io.NewSectionReader(f, offset, 1<<62), nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read compressed log %s: %w", f.Name(), err)
	}
	return z, nil
}
