package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMirrorCopiesManifests(t *testing.T) {
	m := mirror{from: t.TempDir(), to: t.TempDir()}
	for name, text := range map[string]string{
		"a.yaml":       "1",
		"b.json":       "2",
		"empty.yaml":   "",
		".hidden.yaml": "3",
		"a.yaml~":      "4",
		"README.md":    "5",
	} {
		put(t, m.from, name, text)
	}
	touched, err := m.sync()
	if err != nil || !slices.Equal(touched, []string{"a.yaml", "b.json"}) {
		t.Fatalf("touched %q, %v; want a.yaml and b.json", touched, err)
	}
	if touched, err := m.sync(); err != nil || len(touched) > 0 {
		t.Errorf("touched %q, %v when nothing had changed", touched, err)
	}
	put(t, m.from, "a.yaml", "1, changed")
	if err := os.Remove(filepath.Join(m.from, "b.json")); err != nil {
		t.Fatal(err)
	}
	if touched, err := m.sync(); err != nil || !slices.Equal(touched, []string{"a.yaml", "b.json"}) {
		t.Errorf("touched %q, %v; want the changed one and the removed one", touched, err)
	}
	entries, err := os.ReadDir(m.to)
	if err != nil || len(entries) != 1 || entries[0].Name() != "a.yaml" {
		t.Errorf("the copies are %v, %v; want a.yaml alone", entries, err)
	}
	if err := m.clear(); err != nil {
		t.Fatal(err)
	}
	have, err := manifests(m.to)
	if err != nil || len(have) > 0 {
		t.Errorf("after clear there are %v, %v", slices.Collect(maps.Keys(have)), err)
	}
}

// TestMirrorFollows changes a folder and waits for real file notifications.
func TestMirrorFollows(t *testing.T) {
	m := mirror{from: t.TempDir(), to: t.TempDir()}
	put(t, m.from, "before.yaml", "there before the watch")
	reported := make(chan []string)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- m.follow(ctx, func(names []string, err error) {
			if err != nil {
				t.Error(err)
			}
			reported <- names
		})
	}()
	next := func() []string {
		select {
		case names := <-reported:
			return names
		case <-time.After(time.Minute):
			t.Fatal("nothing was reported within a minute")
		}
		return nil
	}
	if got := next(); !slices.Equal(got, []string{"before.yaml"}) {
		t.Errorf("first reported %q", got)
	}
	put(t, m.from, "late.yaml", "1")
	if got := next(); !slices.Equal(got, []string{"late.yaml"}) {
		t.Errorf("reported %q of a new file", got)
	}
	// As editors do: a new file replaces the old one.
	put(t, m.from, "late.yaml.new", "2")
	if err := os.Rename(filepath.Join(m.from, "late.yaml.new"), filepath.Join(m.from, "late.yaml")); err != nil {
		t.Fatal(err)
	}
	if got := next(); !slices.Equal(got, []string{"late.yaml"}) {
		t.Errorf("reported %q of a replaced file", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
