package identity

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/keyutil"

	"keelson/internal/host/checkpoint"
)

// BootstrapConfig holds the configuration of Bootstrap. All fields are required.
type BootstrapConfig struct {
	Store    *Store
	Requests Requests // with the bootstrap credentials
	Node     string
	Timeout  time.Duration // timeout for the request to be approved and issued
	Log      *slog.Logger
}

// Bootstrap gets the node's first client certificate and puts it in the store. The key is kept in a file meanwhile, so
// that a restarted agent finds its request and does not make another one.
func Bootstrap(ctx context.Context, cfg BootstrapConfig) error {
	file := filepath.Join(cfg.Store.cfg.Dir, TemporaryKey)
	key, pem, err := loadOrMakeKey(file, cfg.Log)
	if err != nil {
		return err
	}
	template := ClientTemplate(cfg.Node)
	name, err := requestName(key, template, ClientSigner)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("timed out after %v", cfg.Timeout))
	defer cancel()
	cert, err := request(ctx, cfg, name, key)
	if errors.Is(err, errRejected) {
		// With another key there will be another request.
		err = errors.Join(err, remove(file))
	}
	if err != nil {
		return fmt.Errorf("bootstrap node %s: %w", cfg.Node, err)
	}
	if _, err := cfg.Store.Update(cert, pem); err != nil {
		return fmt.Errorf("bootstrap node %s: %w", cfg.Node, err)
	}
	cfg.Log.Info("got client certificate of the node", "file", cfg.Store.Path(), "request", name)
	return remove(file)
}

func request(ctx context.Context, cfg BootstrapConfig, name string, key *ecdsa.PrivateKey) ([]byte, error) {
	r, err := createRequest(ctx, cfg.Requests, name, ClientSigner, ClientTemplate(cfg.Node), key)
	if err != nil {
		return nil, err
	}
	cfg.Log.Info("waiting for certificate signing request to be approved and issued", "request", r.Name)
	return waitIssued(ctx, cfg.Requests, r)
}

// loadOrMakeKey reads the key of an earlier attempt, or makes one and stores it.
func loadOrMakeKey(file string, log *slog.Logger) (*ecdsa.PrivateKey, []byte, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		parsed, perr := keyutil.ParsePrivateKeyPEM(text)
		if key, ok := parsed.(*ecdsa.PrivateKey); ok && perr == nil {
			return key, text, nil
		}
		log.Warn("failed to parse key of earlier attempt, making another one", "file", file, "err", perr)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read key: %w", err)
	}
	key, text, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make certificate directory: %w", err)
	}
	return key, text, checkpoint.Put(file, text, private)
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove key: %w", err)
	}
	return nil
}
