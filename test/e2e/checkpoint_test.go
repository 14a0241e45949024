//go:build e2e

package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"keelson/test/images"
	"keelson/test/rig"
)

// frozen is a static pod of which two containers can be checkpointed.
const frozen = `apiVersion: v1
kind: Pod
metadata: {name: frozen, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: side, image: ` + images.Demo + `, args: [sleep], restartPolicy: Always}
  containers:
  - {name: main, image: ` + images.Demo + `, args: [sleep]}
`

// TestCheckpoint makes the runtime write the state of containers to files with criu while
// they continue to run.
func TestCheckpoint(t *testing.T) {
	binary, err := rig.OurKubelet(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Start(t, rig.Options{
		Runtime: &rig.RuntimeConfig{Checkpoints: true},
		Kubelet: &rig.KubeletConfig{Binary: binary, Standalone: true, Edit: quick},
	})
	k := r.Kubelet
	if err := os.WriteFile(filepath.Join(k.Manifests, "frozen.yaml"), []byte(frozen), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "frozen-" + k.Node
	until(t, "the pod to run", func() (string, bool) {
		out, err := k.Get(t.Context(), "/runningpods/")
		return out, err == nil && strings.Contains(out, `"name":"main"`) && strings.Contains(out, `"name":"side"`)
	})
	post := func(path string) (int, string) {
		t.Helper()
		resp, err := k.HTTP.Post(k.URL+"/checkpoint/"+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	before, err := k.Get(t.Context(), "/runningpods/")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(k.Root, "checkpoints")
	// The directory has a disk of its own, so that the free space of the machine does not matter.
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=512m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount the disk of checkpoints: %v", err)
		}
	})
	for _, container := range []string{"main", "side"} {
		code, body := post("default/" + name + "/" + container + "?timeout=300")
		if code != http.StatusOK {
			t.Fatalf("checkpoint of %s: %d %s", container, code, body)
		}
		var answer struct{ Items []string }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Items) != 1 {
			t.Fatalf("checkpoint of %s: %s, %v", container, body, err)
		}
		file := answer.Items[0]
		pattern := `^checkpoint-` + name + `_default-` + container + `-(.+)\.tar$`
		m := regexp.MustCompile(pattern).FindStringSubmatch(filepath.Base(file))
		if filepath.Dir(file) != dir || m == nil {
			t.Fatalf("the file is %s, want one in %s of the form %s", file, dir, pattern)
		}
		if _, err := time.Parse(time.RFC3339, m[1]); err != nil {
			t.Errorf("the file is of %v", err)
		}
		inTar(t, file, "checkpoint/pages-1.img", "config.dump", "spec.dump")
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v; want mode 0700", fi.Mode(), err)
	}
	after, err := k.Get(t.Context(), "/runningpods/")
	if err != nil || after != before {
		t.Errorf("running after the checkpoints: %s, %v; want the same as before: %s", after, err, before)
	}
	for path, want := range map[string]int{
		"default/absent/main":                  http.StatusNotFound,
		"default/" + name + "/absent":          http.StatusNotFound,
		"default/" + name + "/main?timeout=no": http.StatusNotFound,
	} {
		if code, body := post(path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
}

// inTar checks that an archive contains these files and that they are not empty.
func inTar(t *testing.T, path string, names ...string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sizes := map[string]int64{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("read %s: %v", path, err)
		}
		sizes[strings.TrimPrefix(h.Name, "./")] = h.Size
	}
	for _, name := range names {
		if sizes[name] == 0 {
			t.Errorf("%s holds no %s: %v", filepath.Base(path), name, sizes)
		}
	}
}
