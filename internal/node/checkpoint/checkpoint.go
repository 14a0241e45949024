package checkpoint

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/utils/dump"
)

// maxFile bounds what is read: state of a thousand pods is well below it.
const maxFile = 64 << 20

// suffixBad is put on the name of a file that cannot be used.
const suffixBad = ".bad"

// Sum is the checksum of v as upstream's agent computes it: over how v prints,
// type names included. A struct must therefore be named as upstream names it; a
// string has no such trap.
func Sum(v any) uint64 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(v))
	return uint64(h.Sum32())
}

// Write replaces the file, which is there whole or as it was before.
func Write(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Read reads the file; one that is not there is nil.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
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

// PutAside renames a file that cannot be used and tells its new name.
func PutAside(path string) (string, error) {
	if err := os.Rename(path, path+suffixBad); err != nil {
		return "", fmt.Errorf("put aside %s: %w", path, err)
	}
	return path + suffixBad, nil
}

// Sweep removes what an agent that was killed while it wrote has left of the file.
func Sweep(path string) error {
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-*"))
	for _, f := range left {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}
