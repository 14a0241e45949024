package builtin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"keelson/internal/storage/mount"
)

const (
	currentLink  = "..data"     // symlink to the current generation
	nextLink     = "..data_tmp" // renamed to currentLink
	maxPath      = 4096
	maxElement   = 255
	generationAt = "..2006_01_02_15_04_05." // prefix of a generation's name, with a random suffix
)

// file is one file of a volume.
type file struct {
	data []byte
	mode os.FileMode
	uid  *int // owner; nil for root
}

// checkPath validates the path of a file in a volume.
func checkPath(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("invalid path: must not be empty: %q", p)
	case path.IsAbs(p):
		return fmt.Errorf("invalid path: must be relative path: %s", p)
	case len(p) > maxPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	}
	elements := strings.Split(p, "/")
	for _, e := range elements {
		if e == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", p)
		}
		if len(e) > maxElement {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxElement)
		}
	}
	if strings.HasPrefix(elements[0], "..") {
		return fmt.Errorf("invalid path: must not start with '..': %s", p)
	}
	if path.Clean(p) == "." {
		return fmt.Errorf("invalid path: names no file: %s", p)
	}
	return nil
}

// writeFiles makes dir contain exactly these files. All of them change atomically for readers, and
// nothing is written if nothing changed. After a crash at any point either the old or the new files
// are visible, and the next call cleans up. gid, if not nil, is the group that may read them. A
// file whose first path element is a nested mount point is omitted: the element is a directory.
func writeFiles(dir string, files map[string]file, nested []string, gid *int, now time.Time) error {
	clean := make(map[string]file, len(files))
	for name, f := range files {
		if err := checkPath(name); err != nil {
			return err
		}
		clean[path.Clean(name)] = f
	}
	current, err := os.Readlink(filepath.Join(dir, currentLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	same := false
	if current != "" {
		if same, err = shows(filepath.Join(dir, current), clean); err != nil {
			return err
		}
	}
	if !same {
		if current, err = writeGeneration(dir, clean, gid, now); err != nil {
			return err
		}
		if err := swapTo(dir, current); err != nil {
			return err
		}
	}
	tops := topNames(clean)
	for _, point := range nested {
		top, _, _ := strings.Cut(point, "/")
		delete(tops, top)
	}
	if err := linkNames(dir, tops); err != nil {
		return err
	}
	return tidy(dir, current, tops, nested)
}

// shows reports whether a generation contains exactly these files.
func shows(gen string, files map[string]file) (bool, error) {
	seen := 0
	err := filepath.WalkDir(gen, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(gen, p)
		if err != nil {
			return err
		}
		want, ok := files[rel]
		if !ok {
			return errDiffers
		}
		have, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, want.data) {
			return errDiffers
		}
		seen++
		return nil
	})
	if errors.Is(err, errDiffers) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && seen == len(files), err
}

var errDiffers = errors.New("differs")

// writeGeneration writes the files to a new directory that is not visible yet. After a failure it
// is removed, so that retries do not accumulate directories.
func writeGeneration(dir string, files map[string]file, gid *int, now time.Time) (name string, err error) {
	gen, err := os.MkdirTemp(dir, now.UTC().Format(generationAt))
	if err != nil {
		return "", err
	}
	defer func() {
		if err == nil {
			return
		}
		if left := mount.RemoveTree(gen); left != nil {
			err = errors.Join(err, left)
		}
	}()
	if err := os.Chmod(gen, 0o755); err != nil { // regardless of the umask
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(gen, name, files[name]); err != nil {
			return "", err
		}
	}
	if gid != nil {
		if err := mount.SetGroup(gen, *gid, true); err != nil {
			return "", err
		}
	}
	return filepath.Base(gen), nil
}

func writeFile(gen, name string, f file) error {
	full := filepath.Join(gen, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(full, f.data, f.mode); err != nil {
		return err
	}
	if f.uid != nil {
		if err := os.Chown(full, *f.uid, -1); err != nil {
			return err
		}
	}
	return os.Chmod(full, f.mode) // regardless of the umask
}

func swapTo(dir, gen string) error {
	next := filepath.Join(dir, nextLink)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(gen, next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, currentLink))
}

// topNames returns the visible names of a volume with the owner of each symlink: that of the file,
// if the name is that of a single file.
func topNames(files map[string]file) map[string]*int {
	tops := map[string]*int{}
	for name, f := range files {
		top, _, nested := strings.Cut(name, "/")
		if _, ok := tops[top]; !ok || f.uid != nil && !nested {
			tops[top] = f.uid
		}
	}
	return tops
}

func linkNames(dir string, tops map[string]*int) error {
	for name, uid := range tops {
		link, to := filepath.Join(dir, name), filepath.Join(currentLink, name)
		if have, err := os.Readlink(link); err != nil || have != to {
			if err := mount.RemoveTree(link); err != nil {
				return err
			}
			if err := os.Symlink(to, link); err != nil {
				return err
			}
		}
		if uid != nil {
			if err := ownLink(link, *uid); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownLink changes the owner of a symlink if necessary. An agent may have been killed before it did
// so.
func ownLink(link string, uid int) error {
	st, err := os.Lstat(link)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) == uid {
		return nil
	}
	return os.Lchown(link, uid, -1)
}

// tidy removes names that are no longer visible and generations other than the current one. Nested
// mount points stay.
func tidy(dir, current string, tops map[string]*int, nested []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		_, shown := tops[name]
		if shown || name == current || name == currentLink {
			continue
		}
		if slices.ContainsFunc(nested, func(point string) bool { return strings.HasPrefix(point+"/", name+"/") }) {
			continue
		}
		if !strings.HasPrefix(name, "..") {
			// Only the agent's symlinks: files of others are not removed.
			if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != filepath.Join(currentLink, name) {
				continue
			}
		}
		if err := mount.RemoveTree(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
