package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"keelson/internal/host/checkpoint"
)

// record is the data of a volume in its directory. The file has upstream's format.
type record struct {
	AttachmentID string `json:"attachmentID,omitempty"`
	Driver       string `json:"driverName"`
	Node         string `json:"nodeName,omitempty"`
	SELinux      string `json:"seLinuxMountContext,omitempty"`
	Name         string `json:"specVolID,omitempty"`
	Handle       string `json:"volumeHandle"`
	Lifecycle    string `json:"volumeLifecycleMode,omitempty"`
}

// Volume lifecycle modes in records.
const (
	lasting   = "Persistent"
	ephemeral = "Ephemeral"
)

// writeRecord writes the record in a directory, which it creates. The write is atomic.
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
	// The record must be on disk before any call to the driver.
	if err := checkpoint.Put(path, data, checkpoint.How{Mode: 0o644, Sync: true}); err != nil {
		return failed("failed to save volume data file "+path, err)
	}
	return nil
}

// readRecord reads the record of a directory. If there is none, the error is fs.ErrNotExist.
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

// removeRecord removes the record, an unusable one, temporary files of writeRecord, and the
// directory if it is then empty.
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

// remove removes a file or empty directory, if it exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
