package rig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"keelson/test/parts"
)

// Config configures a rig.
type Config struct {
	// Purpose is a word such as "test", "cluster" or "run". Find and Remove select rigs by it.
	Purpose string
	// Detached rigs are kept when the process that opened them ends. Sweep does not remove them, Remove does.
	Detached bool
	// Parts finds the programs. Required.
	Parts *parts.Builder
	Log   *slog.Logger
}

// Rig is a folder, a number, and the programs that were started for it.
type Rig struct {
	Dir  string // everything the rig keeps in files
	Logs string // one file per program
	Name string

	Runtime *Runtime // nil until StartRuntime
	Cluster *Cluster // nil until StartCluster
	Kubelet *Kubelet // the last one started

	n     number
	cfg   Config
	book  *book
	pki   *authority
	parts *parts.Builder
	log   *slog.Logger
}

// Open claims a number and makes the rig's folder. It sweeps first, so that the remains of killed runs do not
// accumulate.
func Open(ctx context.Context, cfg Config) (*Rig, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("open rig: containers, mounts and bridges need root")
	}
	if err := Sweep(ctx, cfg.Log); err != nil {
		cfg.Log.Warn("cannot sweep earlier rigs", "err", err)
	}
	r := &Rig{cfg: cfg, parts: cfg.Parts, log: cfg.Log}
	if err := r.claim(); err != nil {
		return nil, fmt.Errorf("open rig: %w", err)
	}
	if err := r.furnish(); err != nil {
		return nil, errors.Join(fmt.Errorf("open rig %s: %w", r.Name, err), r.Close(ctx))
	}
	return r, nil
}

// claim claims the first free number by making its folder.
func (r *Rig) claim() error {
	for n := number(1); n <= maxNumber; n++ {
		dir := n.folder(os.TempDir())
		if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if taken(n) {
			os.Remove(dir)
			continue
		}
		r.n, r.Dir, r.Name = n, dir, n.name()
		book, err := openBook(dir, n, r.cfg)
		r.book = book
		return err
	}
	return fmt.Errorf("all %d numbers are taken: see %s*", maxNumber, filepath.Join(os.TempDir(), prefix))
}

// furnish makes the parts that every rig has.
func (r *Rig) furnish() error {
	// The path of containerd's folder of shim sockets may have 42 bytes. That folder lies in the rig's.
	if len(r.Dir) > 38 {
		return fmt.Errorf("folder %s is too long for sockets: set TMPDIR to a shorter one", r.Dir)
	}
	r.Logs = filepath.Join(r.Dir, "logs")
	if err := os.MkdirAll(r.Logs, 0o755); err != nil {
		return err
	}
	pki, err := newAuthority(filepath.Join(r.Dir, "pki"))
	if err != nil {
		return err
	}
	r.pki = pki
	return r.makeBridge()
}

// Close ends all programs that the rig started and removes everything that it made.
func (r *Rig) Close(ctx context.Context) error {
	if err := r.book.demolish(ctx, r.log); err != nil {
		return fmt.Errorf("close rig %s: %w", r.Name, err)
	}
	return nil
}

// NodeIP is the address of the rig's node, on its bridge.
func (r *Rig) NodeIP() string { return r.n.gateway().String() }

// Loopback is an address of the rig's own in 127.0.0.0/8.
func (r *Rig) Loopback() string { return r.n.loopback() }
