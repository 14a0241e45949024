package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"keelson/internal/host/checkpoint"
)

const maxFile = 1 << 20

// header is the common part of all files.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// write writes a file atomically.
func write(dir, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return checkpoint.Put(filepath.Join(dir, name), raw, checkpoint.How{})
}

// remove removes a file if it exists.
func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readAll calls take for each file of a kind, and bad for a file that cannot be read or has another
// kind. It removes incomplete files.
func readAll(dir, kind string, take func(name string, raw []byte) error, bad func(path string, err error)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), checkpoint.SuffixBad):
			continue // reported to bad
		case strings.HasPrefix(e.Name(), ".tmp-") || strings.HasPrefix(e.Name(), ".sha256-"):
			err = os.Remove(path)
		default:
			err = readOne(path, e.Name(), kind, take)
		}
		if err != nil {
			bad(path, err)
		}
	}
	return nil
}

func readOne(path, name, kind string, take func(name string, raw []byte) error) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxFile {
		return errors.New("not a pull record")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return err
	}
	if h.Kind != kind || h.APIVersion != apiVersion && h.APIVersion != group+"/v1alpha1" {
		return fmt.Errorf("a %q of %q, want %s", h.Kind, h.APIVersion, kind)
	}
	return take(name, raw)
}

// flush calls fsync on a file or directory, if it exists.
func flush(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
