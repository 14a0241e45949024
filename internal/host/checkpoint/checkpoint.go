package checkpoint

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/utils/dump"
)

// maxFile bounds the size of files that are read. The state of a thousand pods is well below it.
const maxFile = 64 << 20

// EventUnusable is the reason of the event about a file that was set aside.
const EventUnusable = "StateFileUnusable"

// SuffixBad is appended to the name of a file that cannot be used.
const SuffixBad = ".bad"

// Sum returns the checksum of v as upstream computes it: over the printed form of v, including the names of types.
// Types of structs therefore need upstream's names.
func Sum(v any) uint64 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(v))
	return uint64(h.Sum32())
}

// How are the options of Put.
type How struct {
	Mode fs.FileMode // zero: 0600
	Sync bool        // the file must survive a power failure
}

// Put replaces a file atomically. Its directory must exist. Temporary files after a crash are removed by [Sweep].
func Put(path string, content []byte, how How) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err == nil && how.Mode != 0 {
		err = f.Chmod(how.Mode)
	}
	if err == nil && how.Sync {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	if how.Sync {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// syncDir syncs a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Write replaces a file that only the agent reads and that need not survive a power failure.
func Write(path string, content []byte) error { return Put(path, content, How{}) }

// Read reads a file. It returns nil if the file does not exist. A broken link is an error.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := os.Lstat(path); errors.Is(there, fs.ErrNotExist) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read state: %w", err)
	case len(b) > maxFile:
		return nil, fmt.Errorf("read state: %s is larger than %d bytes", path, maxFile)
	}
	return b, nil
}

// PutAside renames a file that cannot be used, and returns an error with the reason and its new name. It replaces an
// earlier one with that name.
func PutAside(path string, why error) error {
	to := path + SuffixBad
	if err := errors.Join(os.RemoveAll(to), os.Rename(path, to)); err != nil {
		return fmt.Errorf("use %s: %w", path, errors.Join(why, fmt.Errorf("put it aside: %w", err)))
	}
	return fmt.Errorf("use %s: %w; it is kept as %s", path, why, to)
}

// Sweep removes temporary files of the file, which an agent that was killed has left.
func Sweep(path string) error {
	// Not with a pattern, because the name of the directory may contain special characters.
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+filepath.Base(path)+"-") {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), e.Name())))
		}
	}
	return err
}

// Checksum is a checksum in the struct that it covers, in which it counts as zero.
type Checksum uint64

// SumAs returns the checksum of the struct that v points to, with upstream's name of its type. Types in it need
// upstream's names, or are given as pairs of their own name and upstream's.
func SumAs(v any, name string, within ...string) Checksum {
	own := reflect.TypeOf(v).Elem()
	replace := append([]string{
		own.String() + ")",
		name + ")",
		"(" + reflect.TypeFor[Checksum]().String() + ")",
		"(checksum.Checksum)",
	}, within...)
	h := fnv.New32a()
	fmt.Fprint(h, strings.NewReplacer(replace...).Replace(dump.ForHash(v)))
	return Checksum(h.Sum32())
}
