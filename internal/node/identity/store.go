package identity

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"keelson/internal/node/checkpoint"
)

// ErrNone says that a store has no certificate yet.
var ErrNone = errors.New("no certificate yet")

// StoreConfig holds what a Store is built from.
type StoreConfig struct {
	Dir  string
	Pair string // ClientPair or ServerPair
	// CertFile and KeyFile count until the first certificate is issued. Optional.
	CertFile, KeyFile string
	Log               *slog.Logger
	Now               func() time.Time // optional
	// Unusable is told of a file that had to be put aside. Optional.
	Unusable func(error)
}

// Store is the files of one certificate. Methods are not to be called at the same
// time.
type Store struct{ cfg StoreConfig }

// NewStore opens a store and finishes what an earlier agent may have left half
// done: a link not yet in place, or a file that cannot be read, which is put aside
// as *.bad. Then the newest one that can takes its place.
func NewStore(cfg StoreConfig) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("find certificate directory %s: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	s := &Store{cfg}
	return s, s.recover()
}

// Path is where the certificate in force is, with its key.
func (s *Store) Path() string { return s.path(currentName) }

// inForce is the file that the link leads to; "" if it leads nowhere.
func (s *Store) inForce() string {
	file, err := filepath.EvalSymlinks(s.Path())
	if err != nil {
		return ""
	}
	return file
}

func (s *Store) path(qualifier string) string {
	return filepath.Join(s.cfg.Dir, s.cfg.Pair+"-"+qualifier+".pem")
}

// Current reads the certificate in force, which may have expired.
func (s *Store) Current() (*tls.Certificate, error) {
	pairs := [][2]string{{s.Path(), s.Path()}, {s.cfg.CertFile, s.cfg.KeyFile},
		{filepath.Join(s.cfg.Dir, s.cfg.Pair+".crt"), filepath.Join(s.cfg.Dir, s.cfg.Pair+".key")}}
	for _, p := range pairs {
		if !exists(p[0]) || !exists(p[1]) {
			continue
		}
		c, err := tls.LoadX509KeyPair(p[0], p[1])
		if err != nil {
			return nil, fmt.Errorf("load certificate %s: %w", p[0], err)
		}
		return &c, nil
	}
	return nil, ErrNone
}

// Update keeps a new certificate with its key, both as PEM, and puts it in force.
func (s *Store) Update(cert, key []byte) (*tls.Certificate, error) {
	certs, err := certutil.ParseCertsPEM(cert)
	if err != nil {
		return nil, fmt.Errorf("read issued certificate: %w", err)
	}
	var both bytes.Buffer
	for _, c := range certs {
		if err := pem.Encode(&both, &pem.Block{Type: certutil.CertificateBlockType, Bytes: c.Raw}); err != nil {
			return nil, fmt.Errorf("encode issued certificate: %w", err)
		}
	}
	both.Write(key)
	pair, err := tls.X509KeyPair(both.Bytes(), both.Bytes())
	if err != nil {
		return nil, fmt.Errorf("read issued certificate: %w", err)
	}
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make certificate directory: %w", err)
	}
	// Names tell of the second. Where two come within one, the file of the first may
	// still be in force, or be put aside by its name: the second leaves it alone.
	at := s.cfg.Now().UTC()
	for exists(s.path(at.Format(timeName))) {
		at = at.Add(time.Second)
	}
	file := s.path(at.Format(timeName))
	if err := checkpoint.Put(file, both.Bytes(), private); err != nil {
		return nil, err
	}
	return &pair, s.link(file)
}

// link puts file in force. At each moment the link leads to a whole file.
func (s *Store) link(file string) error {
	updated := s.path(updatedName)
	if err := os.Remove(updated); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", updated, err)
	}
	if err := os.Symlink(file, updated); err != nil {
		return fmt.Errorf("link %s: %w", updated, err)
	}
	// Somebody may have put a file where the link belongs; it is not ours to lose.
	if i, err := os.Lstat(s.Path()); err == nil && i.Mode().IsRegular() {
		if err := os.Rename(s.Path(), s.Path()+".old"); err != nil {
			return fmt.Errorf("put aside %s: %w", s.Path(), err)
		}
	}
	if err := os.Rename(updated, s.Path()); err != nil {
		return fmt.Errorf("link %s: %w", s.Path(), err)
	}
	return nil
}

func (s *Store) recover() error {
	if updated := s.path(updatedName); !exists(s.Path()) && exists(updated) {
		if err := os.Rename(updated, s.Path()); err != nil {
			return fmt.Errorf("finish update of %s: %w", s.Path(), err)
		}
	}
	why := s.broken()
	if why == nil {
		return nil
	}
	if errors.Is(why, fs.ErrPermission) {
		return fmt.Errorf("read certificate %s: %w", s.Path(), why)
	}
	// The file is put aside, not the link: what is wrong is in the file.
	file, err := filepath.EvalSymlinks(s.Path())
	if err != nil {
		file = s.Path() // the link leads nowhere
	}
	if err := os.Rename(file, file+".bad"); err != nil {
		return fmt.Errorf("put aside %s: %w", file, err)
	}
	if err := os.Remove(s.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", s.Path(), err)
	}
	good, err := s.newest()
	s.cfg.Log.Warn("put aside a certificate that cannot be read", "file", file, "aside", file+".bad", "cause", why, "instead", good)
	if s.cfg.Unusable != nil {
		s.cfg.Unusable(fmt.Errorf("use %s: %w; it is kept as %s.bad", file, why, file))
	}
	if err != nil || good == "" {
		return err
	}
	return s.link(good)
}

// broken says what is wrong with the file in force; nil if it is good or not there.
func (s *Store) broken() error {
	if _, err := os.Lstat(s.Path()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := tls.LoadX509KeyPair(s.Path(), s.Path())
	return err
}

// newest finds the newest issued certificate that can be read; "" if there is none.
func (s *Store) newest() (string, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return "", fmt.Errorf("list certificates: %w", err)
	}
	for _, e := range slices.Backward(entries) { // by name, which is by time
		stamp, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".pem"), s.cfg.Pair+"-")
		if _, err := time.Parse(timeName, stamp); !ok || err != nil {
			continue
		}
		file := filepath.Join(s.cfg.Dir, e.Name())
		if _, err := tls.LoadX509KeyPair(file, file); err == nil {
			return file, nil
		}
	}
	return "", nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return file != "" && err == nil
}

// private is how files with keys are written.
var private = checkpoint.How{Mode: 0o600, Sync: true}
