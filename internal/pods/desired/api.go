package desired

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
)

// APIConfig holds what an API source is built from.
type APIConfig struct {
	// Pods lists and watches the pods whose spec.nodeName is this node's.
	Pods cache.ListerWatcher
	// After is closed when the first list may be made; nil: at once.
	After <-chan struct{}
	Log   *slog.Logger
}

// API is the source of pods that the API server assigned to this node.
type API struct {
	cfg APIConfig
}

// NewAPI makes the source.
func NewAPI(cfg APIConfig) *API { return &API{cfg: cfg} }

// Name is "api".
func (a *API) Name() pod.Source { return pod.SourceAPI }

// Run lists and watches until ctx ends. It retries while the server is unavailable and
// logs the failure once.
func (a *API) Run(ctx context.Context, to Sink) error {
	if a.cfg.After != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After:
		}
	}
	store := &apiStore{to: to, log: a.cfg.Log, uids: map[string]types.UID{}}
	// The reflector's own messages are logged at verbosity 2.
	logger := logr.FromSlogHandler(a.cfg.Log.Handler()).V(2)
	ctx = logr.NewContext(ctx, logger)
	backoff := apiBackoff
	r := cache.NewReflectorWithOptions(a.cfg.Pods, &v1.Pod{}, store, cache.ReflectorOptions{
		Name:    "pods of this node",
		Logger:  &logger,
		Backoff: &backoff,
	})
	// The reflector's own loop would log every attempt; this one logs the first failure only.
	for retry := apiBackoff; ; {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			store.failed(err)
		}
		if time.Since(began) > maxAPIRetry {
			retry = apiBackoff // the watch worked for a while
		}
		if !clock.Sleep(ctx, retry.Step()) {
			return nil
		}
	}
}

const (
	minAPIRetry = 200 * time.Millisecond
	maxAPIRetry = 5 * time.Second
)

// apiBackoff is the back-off between watches, with jitter, because all nodes of a cluster may have lost the same
// server.
var apiBackoff = clock.Jittered(clock.Backoff(minAPIRetry, maxAPIRetry), 0.5)

// apiStore is the store that the reflector writes to. A pod that was deleted and created
// again under the same name may arrive as an update, so the UID is recorded by name.
type apiStore struct {
	to  Sink
	log *slog.Logger

	mu   sync.Mutex
	uids map[string]types.UID // by namespace/name
	down bool                 // a failure was logged
}

func (s *apiStore) Add(obj any) error    { return s.set(obj) }
func (s *apiStore) Update(obj any) error { return s.set(obj) }
func (s *apiStore) Resync() error        { return nil }

func (s *apiStore) set(obj any) error {
	p, err := podOf(obj)
	if err != nil {
		return err
	}
	s.recovered()
	key := p.Namespace + "/" + p.Name
	s.mu.Lock()
	old, had := s.uids[key]
	s.uids[key] = p.UID
	s.mu.Unlock()
	if had && old != p.UID {
		s.to.Remove(old)
	}
	s.to.Set(p)
	return nil
}

func (s *apiStore) Delete(obj any) error {
	p, err := podOf(obj)
	if err != nil {
		return err
	}
	s.recovered()
	key := p.Namespace + "/" + p.Name
	s.mu.Lock()
	if s.uids[key] == p.UID {
		delete(s.uids, key)
	}
	s.mu.Unlock()
	s.to.Remove(p.UID)
	return nil
}

func (s *apiStore) Replace(objs []any, _ string) error {
	s.recovered()
	pods := make([]*v1.Pod, 0, len(objs))
	uids := make(map[string]types.UID, len(objs))
	for _, obj := range objs {
		p, err := podOf(obj)
		if err != nil {
			return err
		}
		pods = append(pods, p)
		uids[p.Namespace+"/"+p.Name] = p.UID
	}
	s.mu.Lock()
	s.uids = uids
	s.mu.Unlock()
	s.to.Replace(pods)
	return nil
}

// podOf returns the pod that the reflector delivered, without its managed fields: the
// agent does not use them, and they make up much of an object.
func podOf(obj any) (*v1.Pod, error) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("read pods: the API server sent a %T", obj)
	}
	p.ManagedFields = nil
	return p, nil
}

// failed logs the first failure of a series. An expired resource version is not a failure:
// the reflector lists again.
func (s *apiStore) failed(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.mu.Lock()
	first := !s.down
	s.down = true
	s.mu.Unlock()
	if first {
		s.log.Warn("failed to watch pods; running pods are not affected", "err", err)
	}
}

func (s *apiStore) recovered() {
	s.mu.Lock()
	was := s.down
	s.down = false
	s.mu.Unlock()
	if was {
		s.log.Info("resumed watching pods")
	}
}
