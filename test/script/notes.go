package script

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// noteDirs are the directories with notes, below the root directory of the agent.
var noteDirs = []string{"", "device-plugins"}

// notes are the state files for all pods, by name, from which the next agent
// reads.
func (w *World) notes() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, dir := range noteDirs {
		if err := w.notesOf(dir, files); err != nil {
			return nil, fmt.Errorf("read notes: %w", err)
		}
	}
	return files, nil
}

// steadyNotes reads the notes until two readings are the same, so that files that are written one after the other are
// not mixed from before and after a change.
func (w *World) steadyNotes() (map[string][]byte, error) {
	before, err := w.notes()
	for range 100 {
		if err != nil {
			return nil, err
		}
		now, nerr := w.notes()
		if nerr == nil && maps.EqualFunc(before, now, bytes.Equal) {
			return now, nil
		}
		before, err = now, nerr
	}
	return nil, errors.New("read notes: they do not stay the same")
}

func (w *World) notesOf(dir string, files map[string][]byte) error {
	entries, err := os.ReadDir(filepath.Join(w.Path("kubelet"), dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(filepath.Join(w.Path("kubelet"), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the agent was about to rename it
		}
		if err != nil {
			return err
		}
		files[name] = text
	}
	return nil
}

// putBack undoes what was written after files was read.
func (w *World) putBack(files map[string][]byte) error {
	now, err := w.notes()
	if err != nil {
		return err
	}
	for name := range now {
		if _, was := files[name]; !was {
			err = errors.Join(err, os.Remove(filepath.Join(w.Path("kubelet"), name)))
		}
	}
	for name, text := range files {
		if have, is := now[name]; !is || !bytes.Equal(have, text) {
			err = errors.Join(err, os.WriteFile(filepath.Join(w.Path("kubelet"), name), text, 0o600))
		}
	}
	return err
}
