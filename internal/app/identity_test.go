package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"keelson/internal/node/apiclient"
)

// TestTheBootstrapKubeconfigIsReadWhenItIsNeeded: installers remove it once the node has
// joined, and each renewal would tell of that.
func TestTheBootstrapKubeconfigIsReadWhenItIsNeeded(t *testing.T) {
	cfg := apiclient.Config{Version: "v1"}
	first, err := apiclient.NewFor(&rest.Config{Host: "https://first"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	b := &beginner{first: first, kubeconfig: filepath.Join(t.TempDir(), "bootstrap.conf"), cfg: cfg, log: slog.New(slog.NewTextHandler(&log, nil))}
	b.closeConnections() // as after a renewal
	if log.Len() > 0 {
		t.Errorf("said without need: %s", &log)
	}
	if b.client() != first || strings.Count(log.String(), "cannot use the bootstrap kubeconfig") != 1 {
		t.Errorf("without the file %v asks, and this is said: %s", b.client().Host(), &log)
	}
	if err := os.WriteFile(b.kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: 'https://bootstrap'}}], users: [{name: u, user: {token: t}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := b.client(); c.Host() != "https://bootstrap" || b.client() != c {
		t.Errorf("with the file %s asks, and then %s", c.Host(), b.client().Host())
	}
	b.closeConnections()
	b.kubeconfig, b.made = "", nil
	if b.client() != first {
		t.Error("a node that came for the bootstrap asks with something else")
	}
}
