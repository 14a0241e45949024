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

// maxFile bounds what is read: state of a thousand pods is well below it.
const maxFile = 64 << 20

// EventUnusable is the reason of the event about the node that tells of a file that
// was put aside.
const EventUnusable = "StateFileUnusable"

// SuffixBad is put on the name of a file that cannot be used.
const SuffixBad = ".bad"

// Sum is the checksum of v as upstream's agent computes it: over how v prints,
// type names included. A struct must therefore be named as upstream names it; a
// string has no such trap.
func Sum(v any) uint64 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(v))
	return uint64(h.Sum32())
}

// How is the way a file is put in place.
type How struct {
	Mode fs.FileMode // zero means for the owner alone
	Sync bool        // it must outlive a power cut once Put has returned
}

// Put replaces the file, which is there whole or as it was before. Its directory
// must exist. What a crash leaves is removed by [Sweep].
func Put(path string, content []byte, how How) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // for the owner alone
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

// syncDir has a name in a directory outlive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write down %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Write puts a file in place that only the agent reads and that need not outlive a
// power cut.
func Write(path string, content []byte) error { return Put(path, content, How{}) }

// Read reads the file; one that is not there is nil. A link that leads nowhere is
// something that is there.
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

// PutAside renames a file that cannot be used, and returns why it cannot with the
// name that it is kept under. An earlier one that was put aside makes room.
func PutAside(path string, why error) error {
	to := path + SuffixBad
	if err := errors.Join(os.RemoveAll(to), os.Rename(path, to)); err != nil {
		return fmt.Errorf("use %s: %w", path, errors.Join(why, fmt.Errorf("put it aside: %w", err)))
	}
	return fmt.Errorf("use %s: %w; it is kept as %s", path, why, to)
}

// Sweep removes what an agent that was killed while it wrote has left of the file.
func Sweep(path string) error {
	// Not by a pattern: a directory may be named after what a user wrote.
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

// Checksum is a checksum inside the struct that it is over, as which it counts zero.
type Checksum uint64

// SumAs is the checksum of the struct that v points to as upstream's agent computes
// it where it calls the type name. Types within it must be called as upstream does,
// or be given with their own name and upstream's.
func SumAs(v any, name string, within ...string) Checksum {
	own := reflect.TypeOf(v).Elem()
	replace := append([]string{own.String() + ")", name + ")", "(" + reflect.TypeFor[Checksum]().String() + ")", "(checksum.Checksum)"}, within...)
	h := fnv.New32a()
	fmt.Fprint(h, strings.NewReplacer(replace...).Replace(dump.ForHash(v)))
	return Checksum(h.Sum32())
}
