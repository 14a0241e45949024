package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestPut(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, tc := range []struct {
		name, content string
		how           How
		mode          fs.FileMode
	}{
		{"for the owner alone", "one", How{}, 0o600},
		{"with a mode of its own, over the one before", "two", How{Mode: 0o644}, 0o644},
		{"synced to the disk", "three", How{Mode: 0o400, Sync: true}, 0o400},
		{"over one without write permission", "four", How{}, 0o600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := Put(path, []byte(tc.content), tc.how); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			st, serr := os.Lstat(path)
			if err != nil || serr != nil || string(got) != tc.content || st.Mode() != tc.mode {
				t.Errorf("%q with mode %v, %v %v", got, st.Mode(), err, serr)
			}
		})
	}
	// A failed Put leaves no temporary file.
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Put(filepath.Join(dir, "taken"), []byte("x"), How{Sync: true}); err == nil {
		t.Error("a directory was replaced")
	}
	if err := Put(filepath.Join(dir, "missing", "x"), nil, How{}); err == nil {
		t.Error("a file in no directory was written")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestSweep(t *testing.T) {
	if err := Sweep(filepath.Join(t.TempDir(), "none", "state")); err != nil {
		t.Errorf("no directory: %v", err)
	}
	for _, name := range []string{"plain", "a[b", "[a]", "a*"} { // what a user may call a volume
		t.Run(name, func(t *testing.T) { sweeps(t, filepath.Join(t.TempDir(), name)) })
	}
}

func sweeps(t *testing.T, dir string) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"state", ".state-123", "other", ".other-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"state": true, ".state-123": false, "other": true, ".other-1": true} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
