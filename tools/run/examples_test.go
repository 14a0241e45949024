package main

import (
	"path/filepath"
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

// TestExamples decodes the examples strictly: a misspelt field would show users a wrong name, and another image would
// need a registry.
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
