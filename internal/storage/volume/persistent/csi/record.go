package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"keelson/internal/node/checkpoint"
)

// record is what is known of a volume by its directory. Upstream reads and writes
// the same file.
type record struct {
	AttachmentID string `json:"attachmentID,omitempty"`
	Driver       string `json:"driverName"`
	Node         string `json:"nodeName,omitempty"`
	SELinux      string `json:"seLinuxMountContext,omitempty"`
	Name         string `json:"specVolID,omitempty"`
	Handle       string `json:"volumeHandle"`
	Lifecycle    string `json:"volumeLifecycleMode,omitempty"`
}

// Lifecycle modes of volumes, as records name them.
const (
	lasting   = "Persistent"
	ephemeral = "Ephemeral"
)

// writeRecord leaves the record in a directory, which it makes. A crash leaves
// the old one or the new one.
func writeRecord(dir string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return failed("failed to save volume data file "+path, err)
	}
	// A driver must not have done anything that no record tells of.
	if err := checkpoint.Put(path, data, checkpoint.How{Mode: 0o644, Sync: true}); err != nil {
		return failed("failed to save volume data file "+path, err)
	}
	return nil
}

// readRecord reads the record of a directory; none is an error of fs.ErrNotExist.
func readRecord(dir string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read record in %s: %w", dir, err)
	}
	if r.Driver == "" || r.Handle == "" {
		return r, fmt.Errorf("read record in %s: it names no driver or no volume", dir)
	}
	return r, nil
}

// removeRecord removes the record, one that could not be used, and what an
// interrupted writeRecord left, and the directory if nothing else is in it.
func removeRecord(dir string) error {
	for _, name := range []string{recordFile, recordFile + checkpoint.SuffixBad} {
		if err := remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := checkpoint.Sweep(filepath.Join(dir, recordFile)); err != nil {
		return err
	}
	return remove(dir)
}

// remove removes one file or empty directory; there being none is no error.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
