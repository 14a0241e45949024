package identity

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"keelson/internal/api/client"
	"keelson/test/kit/parity"
)

// TestBootstrapKubeconfigIsReadWhenNeeded: installers remove the file once the node has joined. If each renewal read
// it, each would log an error.
func TestBootstrapKubeconfigIsReadWhenNeeded(t *testing.T) {
	cfg := client.Config{Version: "v1"}
	first, err := client.NewFor(&rest.Config{Host: "https://first"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	b := &beginner{
		first:      first,
		kubeconfig: filepath.Join(t.TempDir(), "bootstrap.conf"),
		cfg:        cfg,
		log:        slog.New(slog.NewTextHandler(&log, nil)),
	}
	b.closeConnections() // as after a renewal
	if log.Len() > 0 {
		t.Errorf("logged without need: %s", &log)
	}
	if b.client() != first || strings.Count(log.String(), "cannot use the bootstrap kubeconfig") != 1 {
		t.Errorf("without the file %v asks, and this is logged: %s", b.client().Host(), &log)
	}
	if err := os.WriteFile(b.kubeconfig,
		[]byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: 'https://bootstrap'}}], users: [{name: u, user: {token: t}}]}`),
		0o600); err != nil {
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

// unauthorized is an API server that rejects all credentials.
type unauthorized struct{}

func (unauthorized) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusUnauthorized,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(
			strings.NewReader(
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)),
		Request: r,
	}, nil
}

// TestAgentEndsWithoutCertificate: with and without a bootstrap kubeconfig, the agent exits five minutes after its
// start or after the expiry of its last certificate, so that it is restarted with other credentials.
func TestAgentEndsWithoutCertificate(t *testing.T) {
	parity.ProvesPart(t, 4, "CFG-130")
	for _, bootstrap := range []string{"", "/nowhere/bootstrap.conf"} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			cfg := client.Config{
				Version: "v1",
				Wrap:    func(http.RoundTripper) http.RoundTripper { return unauthorized{} },
			}
			access := Access{Credentials: &rest.Config{Host: "https://api"}}
			first, err := client.NewFor(access.Credentials, cfg)
			if err != nil {
				t.Fatal(err)
			}
			log := slog.New(slog.DiscardHandler)
			store, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			c := ClientConfig{
				Client:              cfg,
				Node:                "n1",
				BootstrapKubeconfig: bootstrap,
				Registry:            prometheus.NewRegistry(),
				Log:                 log,
			}
			_, rotator, err := c.rotated(access, first, store)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin := time.Now()
			err = rotator.Run(ctx)
			if took := time.Since(begin); err == nil || took < 5*time.Minute || took > 6*time.Minute {
				t.Errorf("with the bootstrap kubeconfig %q: ended after %v with %v", bootstrap, took, err)
			}
		})
	}
}
