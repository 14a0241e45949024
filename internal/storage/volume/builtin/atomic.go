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
	currentLink  = "..data"     // leads to the present generation
	nextLink     = "..data_tmp" // renamed over currentLink
	maxPath      = 4096
	maxElement   = 255
	generationAt = "..2006_01_02_15_04_05." // a generation's name, before the random part
)

// file is one file of a volume.
type file struct {
	data []byte
	mode os.FileMode
	uid  *int // its owner; nil for root
}

// checkPath tells what is wrong with the path of a file in a volume.
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

// writeFiles makes dir show exactly these files. All of them change at once for
// whoever reads through the volume, and nothing is touched if nothing changed.
// A crash at any point leaves the old files or the new ones, and the next call
// tidies up. gid, if not nil, is the group that may read them. A file whose first
// element is that of a nested mount point is not shown: a directory is in its place.
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

// shows reports whether a generation holds exactly these files.
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

// writeGeneration writes the files to a new directory that nobody looks at yet. One that
// cannot be written in full is removed: the next attempt would add another one.
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
	if err := os.Chmod(gen, 0o755); err != nil { // whatever the umask
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
	return os.Chmod(full, f.mode) // whatever the umask
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

// topNames are the names that a volume shows, each with the owner of its link:
// that of the file, if the name is one file's.
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

// ownLink gives a link to a user, unless it is theirs. Whoever made it may have been
// killed before that.
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

// tidy removes names that are shown no more, and generations other than the
// current one. Nested mount points stay.
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
			// Only links of ours: nothing else belongs here, and what somebody
			// put here is not ours to remove.
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
