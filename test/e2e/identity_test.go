//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/parts"
	"keelson/test/rig"
)

// TestStaticPodsHaveUpstreamsUIDs gives both agents the same manifests, none of
// which has a UID, in a directory and at a URL, and compares the generated UIDs.
func TestStaticPodsHaveUpstreamsUIDs(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-07")
	need.Root(t, "running containers")
	n, peer := bothAgents(t)
	r := rig.Start(t, rig.Options{NoRuntime: true})
	root, err := parts.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	manifests := filepath.Join(root, "internal", "pods", "manifest", "testdata", "uid")
	files, err := os.ReadDir(manifests)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind": "PodList", "apiVersion": "v1", "items": [
			{"metadata": {"name": "by-url"}, "spec": {"containers": [{"name": "a", "image": "registry.k8s.io/pause:3.10"}]}},
			{"metadata": {"name": "by-url-too", "uid": "mine"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}]}`)
	}))
	t.Cleanup(server.Close)

	uids := func(binary string) map[string]string {
		runtime := fakecri.New(fakecri.Options{})
		socket := filepath.Join(r.Dir, "fake.sock")
		if err := runtime.Listen(socket); err != nil {
			t.Fatal(err)
		}
		defer runtime.Close()
		k, err := r.StartKubelet(t.Context(),
			rig.KubeletConfig{Binary: binary, Node: "Node1", Endpoint: "unix://" + socket, Standalone: true,
				Edit: func(c *kubeletconfig.KubeletConfiguration) {
					c.StaticPodPath, c.StaticPodURL = manifests, server.URL
				}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			k.Stop()
			if log, err := os.ReadFile(k.LogFile); t.Failed() {
				t.Logf("log of %s: %s %v", binary, log, err)
			}
		}()
		have := map[string]string{}
		until(t, "all static pods to be listed", func() (string, bool) {
			text, err := k.Get(t.Context(), "/pods")
			if err != nil {
				return err.Error(), false
			}
			var list corev1.PodList
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				t.Fatal(err)
			}
			for _, p := range list.Items {
				have[p.Name] = string(p.UID)
			}
			return fmt.Sprint(slices.Sorted(maps.Keys(have))), len(have) == len(files)+2
		})
		return have
	}
	theirs := uids(peer)
	if mine := uids(n.ours); !maps.Equal(mine, theirs) {
		t.Errorf("UIDs\n%v\nof upstream:\n%v", mine, theirs)
	}
}
