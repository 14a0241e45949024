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

	"keelson/internal/host/checkpoint"
)

// ErrNone is the error of a store without a certificate.
var ErrNone = errors.New("no certificate yet")

// StoreConfig holds the configuration of a Store.
type StoreConfig struct {
	Dir  string
	Pair string // ClientPair or ServerPair
	// CertFile and KeyFile are used until the first certificate is issued. Optional.
	CertFile, KeyFile string
	Log               *slog.Logger
	Now               func() time.Time // optional
	// OnCorrupt is called with the error of a file that was set aside. Optional.
	OnCorrupt func(error)
}

// Store is the files of one certificate. Its methods must not be called concurrently.
type Store struct{ cfg StoreConfig }

// NewStore opens a store and repairs what an earlier agent may have left incomplete: a link that is not in place, or a
// file that cannot be read, which is renamed to *.bad. The newest readable file then becomes the current one.
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

// Path returns the path of the current certificate, with its key.
func (s *Store) Path() string { return s.path(currentName) }

// currentFile returns the file that the link leads to, or "".
func (s *Store) currentFile() string {
	file, err := filepath.EvalSymlinks(s.Path())
	if err != nil {
		return ""
	}
	return file
}

func (s *Store) path(qualifier string) string {
	return filepath.Join(s.cfg.Dir, s.cfg.Pair+"-"+qualifier+".pem")
}

// Current reads the current certificate, which may have expired.
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

// Update stores a new certificate with its key, both as PEM, and makes it the current one.
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
	// Files are named by the second. If there are two within one second, the second one gets a later name, because the
	// first may still be current, or be set aside.
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

// link makes file the current one, atomically.
func (s *Store) link(file string) error {
	updated := s.path(updatedName)
	if err := os.Remove(updated); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", updated, err)
	}
	if err := os.Symlink(file, updated); err != nil {
		return fmt.Errorf("link %s: %w", updated, err)
	}
	// If there is a regular file in place of the link, it is kept.
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
	// The file is set aside, not the link.
	file, err := filepath.EvalSymlinks(s.Path())
	if err != nil {
		file = s.Path() // broken link
	}
	if err := os.Rename(file, file+".bad"); err != nil {
		return fmt.Errorf("put aside %s: %w", file, err)
	}
	if err := os.Remove(s.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", s.Path(), err)
	}
	good, err := s.newest()
	s.cfg.Log.Warn("set aside certificate that cannot be read",
		"file", file, "renamedTo", file+".bad", "reason", why, "replacement", good)
	if s.cfg.OnCorrupt != nil {
		s.cfg.OnCorrupt(fmt.Errorf("use %s: %w; it is kept as %s.bad", file, why, file))
	}
	if err != nil || good == "" {
		return err
	}
	return s.link(good)
}

// broken returns why the current file cannot be used, or nil. A file that does not exist is not an error.
func (s *Store) broken() error {
	if _, err := os.Lstat(s.Path()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := tls.LoadX509KeyPair(s.Path(), s.Path())
	return err
}

// newest returns the newest issued certificate that can be read, or "".
func (s *Store) newest() (string, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return "", fmt.Errorf("list certificates: %w", err)
	}
	for _, e := range slices.Backward(entries) { // sorted by name, which is the time
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

// private are the options of files with keys.
var private = checkpoint.How{Mode: 0o600, Sync: true}
