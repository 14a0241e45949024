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

	"keelson/internal/node/checkpoint"
)

// BootstrapConfig holds what Bootstrap works with. Every field is required.
type BootstrapConfig struct {
	Store    *Store
	Requests Requests // with the credentials for the bootstrap
	Node     string
	Patience time.Duration // longest wait for the request to be approved and issued
	Log      *slog.Logger
}

// Bootstrap gets the node its first client certificate, and returns when that is in
// the store. The key waits in a file meanwhile, so that an agent that is started
// again finds the request that was made and makes no second one.
func Bootstrap(ctx context.Context, cfg BootstrapConfig) error {
	file := filepath.Join(cfg.Store.cfg.Dir, TemporaryKey)
	key, pem, err := keptKey(file, cfg.Log)
	if err != nil {
		return err
	}
	template := ClientTemplate(cfg.Node)
	name, err := requestName(key, template, ClientSigner)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Patience, fmt.Errorf("not within %v", cfg.Patience))
	defer cancel()
	cert, err := request(ctx, cfg, name, key)
	if errors.Is(err, errRefused) {
		// Another key makes another request.
		err = errors.Join(err, remove(file))
	}
	if err != nil {
		return fmt.Errorf("bootstrap node %s: %w", cfg.Node, err)
	}
	if _, err := cfg.Store.Update(cert, pem); err != nil {
		return fmt.Errorf("bootstrap node %s: %w", cfg.Node, err)
	}
	cfg.Log.Info("node has its client certificate", "file", cfg.Store.Path(), "request", name)
	return remove(file)
}

func request(ctx context.Context, cfg BootstrapConfig, name string, key *ecdsa.PrivateKey) ([]byte, error) {
	r, err := ask(ctx, cfg.Requests, name, ClientSigner, ClientTemplate(cfg.Node), key)
	if err != nil {
		return nil, err
	}
	cfg.Log.Info("waiting for the node's client certificate to be approved and issued", "request", r.Name)
	return await(ctx, cfg.Requests, r)
}

// keptKey reads the key of an earlier try, or makes one and keeps it.
func keptKey(file string, log *slog.Logger) (*ecdsa.PrivateKey, []byte, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		parsed, perr := keyutil.ParsePrivateKeyPEM(text)
		if key, ok := parsed.(*ecdsa.PrivateKey); ok && perr == nil {
			return key, text, nil
		}
		log.Warn("the key of an earlier try cannot be read, making another", "file", file, "cause", perr)
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
