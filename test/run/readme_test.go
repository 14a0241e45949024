package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"keelson/test/images"
	"keelson/test/parts"
)

// checkout is the folder of the project.
func checkout(t *testing.T) string {
	t.Helper()
	dir, err := parts.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	target   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	makeLine = regexp.MustCompile("(?m)(?:^ +|`)make ([a-z][a-z-]*)")
)

// TestDocumentsNameTargetsThatExist holds the commands that a newcomer is told
// to the Makefile.
func TestDocumentsNameTargetsThatExist(t *testing.T) {
	root := checkout(t)
	files, err := filepath.Glob(filepath.Join(root, "mk", "*.mk"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, f := range append(files, filepath.Join(root, "Makefile")) {
		for _, m := range target.FindAllStringSubmatch(read(t, f), -1) {
			targets[m[1]] = true
		}
	}
	named := map[string]bool{}
	for _, doc := range []string{"README.md", "HACKING.md"} {
		for _, m := range makeLine.FindAllStringSubmatch(read(t, filepath.Join(root, doc)), -1) {
			named[m[1]] = true
			if !targets[m[1]] {
				t.Errorf("%s says `make %s`, and there is no such target", doc, m[1])
			}
		}
	}
	for _, must := range []string{"run", "test"} {
		if !named[must] {
			t.Errorf("no document says `make %s`", must)
		}
	}
}

// TestDocumentsLinkToFilesThatExist follows the README's links.
func TestDocumentsLinkToFilesThatExist(t *testing.T) {
	root := checkout(t)
	for _, m := range regexp.MustCompile(`\]\(([^):#]+)\)`).FindAllStringSubmatch(read(t, filepath.Join(root, "README.md")), -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("README.md links to %s: %v", m[1], err)
		}
	}
}

// TestExamples reads them strictly: a misspelt field in an example would teach
// the wrong name, and another image would need a registry.
func TestExamples(t *testing.T) {
	dir := filepath.Join(checkout(t), "examples")
	files, err := manifests(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples in %s: %v", dir, err)
	}
	for name, data := range files {
		var p v1.Pod
		if err := yaml.UnmarshalStrict(data, &p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			if c.Image != images.Demo {
				t.Errorf("%s: container %s has image %s, want %s", name, c.Name, c.Image, images.Demo)
			}
		}
	}
}
