package rig

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"keelson/test/kit/fakeapi"
	"keelson/test/kit/fakecri"
)

// TestKubeletOfAnExternalAPI starts our kubelet with an API server and a runtime that run in the test's process. Its
// node becomes Ready, also after a restart.
func TestKubeletOfAnExternalAPI(t *testing.T) {
	r := Start(t, Options{NoRuntime: true})
	binary, err := OurKubelet(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	runtime := fakecri.New(fakecri.Options{})
	socket := filepath.Join(r.Dir, "fake.sock")
	if err := runtime.Listen(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Close)
	api := fakeapi.New()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // before the server closes, which waits for its requests
	k, err := r.StartKubelet(t.Context(), KubeletConfig{
		Binary:   binary,
		Endpoint: "unix://" + socket,
		External: &ExternalAPI{URL: server.URL, Client: api.Client()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	for range 2 {
		if n := api.Node(k.Node); n == nil || !NodeReady(n) {
			t.Fatalf("the node is not ready: %+v", n)
		}
		if text, err := k.Get(t.Context(), "/healthz"); err != nil || text != "ok" {
			t.Errorf("the kubelet's server: %q, %v", text, err)
		}
		if err := k.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
