package desired

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/manifest"
	"keelson/internal/pods/pod"
)

// URLConfig holds what a URL source is built from.
type URLConfig struct {
	URL      string
	Header   http.Header // sent with each request
	Period   time.Duration
	Manifest manifest.Compiler
	Log      *slog.Logger
}

// URL is the source of static pods whose manifests a web server provides.
type URL struct {
	cfg    URLConfig
	client *http.Client
	sum    [sha256.Size]byte
	seen   bool
	fails  int
}

// loudFailures is how many failures in a row are logged at level Info, as upstream does;
// further ones are debug messages.
const loudFailures = 4

// NewURL makes the source.
func NewURL(cfg URLConfig) *URL {
	return &URL{cfg: cfg, client: &http.Client{Timeout: 10 * time.Second}}
}

// Name is "http".
func (u *URL) Name() pod.Source { return pod.SourceHTTP }

// Run requests the manifests every Period. After a failed or invalid response the pods
// stay as they are.
func (u *URL) Run(ctx context.Context, to Sink) error {
	tick := time.NewTicker(u.cfg.Period)
	defer tick.Stop()
	for {
		pods, changed, err := u.fetch(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			u.failed(err)
		case err == nil:
			if u.fails > 0 {
				u.cfg.Log.Info("read manifests from URL again", "url", u.cfg.URL)
				u.fails = 0
			}
			if changed {
				to.Replace(pods)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (u *URL) failed(err error) {
	u.fails++
	level := slog.LevelInfo
	if u.fails > loudFailures {
		level = slog.LevelDebug
	}
	u.cfg.Log.Log(context.Background(), level, "failed to read manifests from URL", "url", u.cfg.URL, "err", err)
}

// fetch makes one request. An empty body means that there are no pods.
func (u *URL) fetch(ctx context.Context) (pods []*v1.Pod, changed bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.cfg.URL, nil)
	if err != nil {
		return nil, false, err
	}
	req.Header = u.cfg.Header.Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	res, err := u.client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxManifest+1))
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("read response: %w", err)
	case res.StatusCode != http.StatusOK:
		return nil, false, fmt.Errorf("server responded with %s", res.Status)
	case len(text) > maxManifest:
		return nil, false, fmt.Errorf("response is larger than %d MiB", maxManifest>>20)
	}
	sum := digest(text)
	if u.seen && sum == u.sum {
		return nil, false, nil
	}
	if len(text) > 0 {
		if pods, err = u.cfg.Manifest.URL(u.cfg.URL, text); err != nil {
			return nil, false, err
		}
	}
	u.sum, u.seen = sum, true
	return pods, true, nil
}
