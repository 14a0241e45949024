package record

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/host/checkpoint"
	"keelson/internal/runtime/image"
)

// Config holds what a Store is built from. Fields are required unless their comment says otherwise.
type Config struct {
	Root   string // the root directory
	Policy Policy
	// Images lists the runtime's images.
	Images   func(context.Context) ([]*runtimeapi.Image, error)
	Registry prometheus.Registerer // nil: metrics are not registered
	// Unusable is called for each file that was ignored. Optional.
	Unusable func(error)
	Log      *slog.Logger
	Now      func() time.Time
}

// Store keeps the pull records. It is safe for concurrent use and implements [image.Records].
type Store struct {
	cfg             Config
	pulling, pulled string // directories
	metrics         metrics
	poke            chan struct{} // capacity 1: there are files to flush

	mu      sync.Mutex
	intents map[string]int // number of concurrent pulls by name; 0: left by an earlier agent
	records map[string]v1beta1.ImagePulledRecord
	dirty   map[string]bool // paths to flush
}

// New creates the directories and reads their files. Invalid files are ignored.
func New(cfg Config) (*Store, error) {
	dir := filepath.Join(cfg.Root, Dir)
	s := &Store{
		cfg:     cfg,
		pulling: filepath.Join(dir, pullingDir),
		pulled:  filepath.Join(dir, pulledDir),
		poke:    make(chan struct{}, 1),
		intents: map[string]int{},
		records: map[string]v1beta1.ImagePulledRecord{},
		dirty:   map[string]bool{},
	}
	for _, d := range []string{dir, s.pulling, s.pulled} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("create directory of pull records: %w", err)
		}
	}
	var err error
	if s.metrics, err = newMetrics(cfg.Registry); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("read pull records: %w", err)
	}
	s.countLocked()
	return s, nil
}

func (s *Store) load() error {
	bad := func(path string, err error) {
		err = checkpoint.PutAside(path, err)
		s.cfg.Log.Warn("failed to read pull record", "err", err)
		if s.cfg.Unusable != nil {
			s.cfg.Unusable(err)
		}
	}
	misnamed := func(name, of string) error {
		if name != fileName(of) {
			return fmt.Errorf("file name does not match %q", of)
		}
		return nil
	}
	if err := readAll(s.pulling, intentKind, func(name string, raw []byte) error {
		var i v1beta1.ImagePullIntent
		if err := json.Unmarshal(raw, &i); err != nil {
			return err
		}
		if err := misnamed(name, i.Image); err != nil {
			return err
		}
		s.intents[i.Image] = 0
		return nil
	}, bad); err != nil {
		return err
	}
	return readAll(s.pulled, recordKind, func(name string, raw []byte) error {
		var r v1beta1.ImagePulledRecord
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		if err := misnamed(name, r.ImageRef); err != nil {
			return err
		}
		s.records[r.ImageRef] = r
		return nil
	}, bad)
}

// Run converts intents of an earlier agent to records and then flushes written files until ctx
// ends.
func (s *Store) Run(ctx context.Context) error {
	if images, err := s.cfg.Images(ctx); err == nil {
		s.Review(images, time.Time{})
	} else if ctx.Err() == nil {
		s.cfg.Log.Warn("failed to list images to resolve pull intents of an earlier agent", "err", err)
	}
	for {
		select {
		case <-ctx.Done():
			s.flush()
			return nil
		case <-s.poke:
			s.flush()
		}
	}
}

func (s *Store) flush() {
	s.mu.Lock()
	paths := slices.Sorted(maps.Keys(s.dirty))
	clear(s.dirty)
	s.mu.Unlock()
	if len(paths) == 0 {
		return
	}
	for _, p := range append(paths, s.pulling, s.pulled) {
		if err := flush(p); err != nil {
			s.cfg.Log.Warn("failed to flush pull record", "path", p, "err", err)
		}
	}
}

// MustPull implements [image.Records].
func (s *Store) MustPull(name, ref string, held func() ([]image.Credential, error)) bool {
	result := s.check(name, ref, held)
	s.metrics.checks.WithLabelValues(result).Inc()
	return result == resultPull || result == resultError
}

func (s *Store) check(name, ref string, held func() ([]image.Credential, error)) string {
	repo, full, err := repository(name)
	if err != nil {
		return resultError
	}
	s.mu.Lock()
	rec, recorded := s.records[ref]
	_, intended := s.intents[name]
	known, ok := rec.CredentialMapping[repo]
	s.mu.Unlock()
	switch {
	case !s.cfg.Policy.needed([]string{repo, full}, recorded || intended):
		return resultPolicy
	case !ok:
		return resultPull
	case known.NodePodsAccessible:
		return resultRecord
	case len(known.KubernetesSecrets)+len(known.KubernetesServiceAccounts) == 0:
		return resultPull
	}
	creds, err := held()
	if err != nil {
		return resultError
	}
	c, ok := match(known, creds)
	if !ok {
		return resultPull
	}
	// Record the pod's credential, so that access still works when the matching one is deleted.
	if err := s.record(name, ref, c); err != nil {
		s.cfg.Log.Warn("failed to write pull record", "image", name, "err", err)
	}
	return resultRecord
}

// Pulling implements [image.Records].
func (s *Store) Pulling(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.intents[name]; !there {
		err := write(s.pulling, fileName(name), v1beta1.ImagePullIntent{
			TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: intentKind},
			Image:    name,
		})
		if err != nil {
			return err
		}
		s.wroteLocked(filepath.Join(s.pulling, fileName(name)))
	}
	s.intents[name]++
	s.countLocked()
	return nil
}

// Pulled implements [image.Records]. If the record cannot be written, the intent stays; it shows
// that the agent pulled the image.
func (s *Store) Pulled(name, ref string, with image.Credential) {
	if err := s.record(name, ref, with); err != nil {
		s.cfg.Log.Error("failed to write pull record", "image", name, "err", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.intents[name] = max(s.intents[name]-1, 0)
		return
	}
	s.Failed(name)
}

// Failed implements [image.Records].
func (s *Store) Failed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.intents[name]--; s.intents[name] > 0 {
		return
	}
	s.forgetIntentLocked(name)
}

// Review compares the records with the images present at a given time. Intents of an earlier agent
// whose image is present become records with unknown credentials. Records of images that are gone
// are deleted unless they are newer.
func (s *Store) Review(images []*runtimeapi.Image, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, under := range s.intents {
		if under > 0 {
			continue
		}
		for _, img := range images {
			if !isCalled(img, name) {
				continue
			}
			if _, known := s.records[img.GetId()]; !known {
				if err := s.writeLocked(v1beta1.ImagePulledRecord{ImageRef: img.GetId()}); err != nil {
					s.cfg.Log.Warn("failed to write pull record", "image", name, "err", err)
					break
				}
			}
			s.forgetIntentLocked(name)
			break
		}
	}
	for ref, r := range s.records {
		if !r.LastUpdatedTime.Time.Before(at) ||
			slices.ContainsFunc(images, func(img *runtimeapi.Image) bool { return isReferredTo(img, ref) }) {
			continue
		}
		if err := remove(s.pulled, fileName(ref)); err != nil {
			s.cfg.Log.Warn("failed to remove pull record", "image", ref, "err", err)
			continue
		}
		delete(s.records, ref)
	}
	s.countLocked()
}

// record records that an image was pulled under a name with a credential.
func (s *Store) record(name, ref string, c image.Credential) error {
	repo, _, err := repository(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, there := s.records[ref]
	old, known := r.CredentialMapping[repo]
	next := with(old, c)
	if there && known && next.NodePodsAccessible == old.NodePodsAccessible &&
		slices.Equal(next.KubernetesSecrets, old.KubernetesSecrets) &&
		slices.Equal(next.KubernetesServiceAccounts, old.KubernetesServiceAccounts) {
		return nil
	}
	mapping := maps.Clone(r.CredentialMapping)
	if mapping == nil {
		mapping = map[string]v1beta1.ImagePullCredentials{}
	}
	mapping[repo] = next
	err = s.writeLocked(v1beta1.ImagePulledRecord{ImageRef: ref, CredentialMapping: mapping})
	s.countLocked()
	return err
}

// writeLocked writes a record to disk and memory.
func (s *Store) writeLocked(r v1beta1.ImagePulledRecord) error {
	r.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: recordKind}
	r.LastUpdatedTime = metav1.NewTime(s.cfg.Now())
	if err := write(s.pulled, fileName(r.ImageRef), r); err != nil {
		return err
	}
	s.records[r.ImageRef] = r
	s.wroteLocked(filepath.Join(s.pulled, fileName(r.ImageRef)))
	return nil
}

func (s *Store) forgetIntentLocked(name string) {
	if err := remove(s.pulling, fileName(name)); err != nil {
		s.cfg.Log.Warn("failed to remove image pull intent", "image", name, "err", err)
		s.intents[name] = 0
		return
	}
	delete(s.intents, name)
	s.countLocked()
}

func (s *Store) wroteLocked(path string) {
	s.dirty[path] = true
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func (s *Store) countLocked() {
	s.metrics.intents.Set(float64(len(s.intents)))
	s.metrics.records.Set(float64(len(s.records)))
}
