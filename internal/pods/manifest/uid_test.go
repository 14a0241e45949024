package manifest

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The UIDs are those that upstream's kubelet v1.36.3 gave these manifests, in /tmp/manifests on node1. test/e2e
// compares with it again.
func TestManifestUIDsAreUpstreams(t *testing.T) {
	want := map[string]string{
		"amounts.yaml":      "b8f8350bce88907d11f3e7fbdaa8b4a2",
		"asjson.json":       "82233f54d6e63936bea97957cfab6532",
		"controlplane.yaml": "4234c033b81572292125ddde733614cc",
		"everything.yaml":   "8723fc3ebb915eee7ef32e7f5ede8f7c",
		"plain.yaml":        "a0bc6634bed6943f6b452b59f6aa761e",
	}
	files, err := os.ReadDir("testdata/uid")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join("testdata/uid", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := Compiler{NodeName: "node1"}.File(filepath.Join("/tmp/manifests", f.Name()), text)
		if err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		} else if string(p.UID) != want[f.Name()] {
			t.Errorf("%s: UID %s, want %s: a swap of the agents would restart the pod", f.Name(), p.UID, want[f.Name()])
		}
	}
}

// A field that a new version of the API adds must be added to the lists.
func TestInternalTypesHaveAllFields(t *testing.T) {
	for _, c := range []struct {
		kind reflect.Type
		has  []string
	}{
		{reflect.TypeFor[v1.PodSpec](), internalPodSpec},
		{reflect.TypeFor[v1.PodSecurityContext](), internalPodSecurityContext},
		{reflect.TypeFor[v1.PodStatus](), internalPodStatus},
		{reflect.TypeFor[v1.VolumeSource](), internalVolumeSource},
	} {
		for _, f := range reflect.VisibleFields(c.kind) {
			if !slices.Contains(c.has, f.Name) && !slices.Contains(internalMissing, f.Name) {
				t.Errorf("%s.%s has no place", c.kind, f.Name)
			}
		}
	}
}
