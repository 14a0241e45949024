package rules

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEveryRoomAndPackageHasADocFile(t *testing.T) {
	violations, err := Docs(root, "internal")
	if err != nil {
		t.Fatal(err)
	}
	report(t, violations)
	for _, room := range rooms {
		if _, err := os.Stat(filepath.Join(root, room, "doc.go")); err != nil {
			t.Error(err)
		}
	}
}

func TestDocsCatches(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // "" = allowed
	}{
		{"a room and a package, and a directory without code", map[string]string{
			"pods/doc.go":       "// Package pods is.\npackage pods\n",
			"pods/pod/doc.go":   "// Package pod is.\npackage pod\n",
			"pods/testdata/a.x": "x",
		}, ""},
		{"a room without", map[string]string{
			"pods/pod/doc.go": "// Package pod is.\npackage pod\n",
		}, "internal/pods has no doc.go"},
		{"a comment in another file", map[string]string{
			"pod/pod.go": "// Package pod is.\npackage pod\n",
		}, "internal/pod has no doc.go"},
		{"no comment", map[string]string{
			"pod/doc.go": "package pod\n",
		}, "internal/pod has no doc.go"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(dir, "internal", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Docs(dir, "internal")
			if err != nil {
				t.Fatal(err)
			}
			check(t, got, c.want)
		})
	}
}
