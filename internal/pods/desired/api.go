package desired

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"keelson/internal/pods/pod"
)

// APIConfig holds what an API source is built from.
type APIConfig struct {
	// Pods lists and watches the pods whose spec.nodeName is this node's.
	Pods cache.ListerWatcher
	// After is waited for before the first list; nil for nothing.
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

// Run lists and watches until ctx ends. A server that is away is waited for and
// mentioned once.
func (a *API) Run(ctx context.Context, to Sink) error {
	if a.cfg.After != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After:
		}
	}
	store := &apiStore{to: to, log: a.cfg.Log, uids: map[string]types.UID{}}
	// What the reflector has to say is for those who look closely.
	logger := logr.FromSlogHandler(a.cfg.Log.Handler()).V(2)
	ctx = logr.NewContext(ctx, logger)
	r := cache.NewReflectorWithOptions(a.cfg.Pods, &v1.Pod{}, store, cache.ReflectorOptions{
		Name:    "pods of this node",
		Logger:  &logger,
		Backoff: &wait.Backoff{Duration: minAPIRetry, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: maxAPIRetry},
	})
	// The reflector's own loop logs every attempt; this one speaks up once.
	for retry := minAPIRetry; ; {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			store.failed(err)
		}
		if time.Since(began) > maxAPIRetry {
			retry = minAPIRetry // it worked for a while
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait.Jitter(retry, 0.5)):
		}
		retry = min(2*retry, maxAPIRetry)
	}
}

const (
	minAPIRetry = 200 * time.Millisecond
	maxAPIRetry = 5 * time.Second
)

// apiStore is where the reflector delivers. A pod that was deleted and made
// anew under the same name may arrive as an update, so names are kept beside
// the UIDs.
type apiStore struct {
	to  Sink
	log *slog.Logger

	mu   sync.Mutex
	uids map[string]types.UID // by namespace/name
	down bool                 // the server was reported as away
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

// podOf takes a pod from the reflector. Who changed which field is of no
// interest here and makes up much of an object.
func podOf(obj any) (*v1.Pod, error) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("read pods: the API server sent a %T", obj)
	}
	p.ManagedFields = nil
	return p, nil
}

// failed reports the first failure of a series. A watch that only became too old
// is part of ordinary life: the reflector lists again.
func (s *apiStore) failed(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.mu.Lock()
	first := !s.down
	s.down = true
	s.mu.Unlock()
	if first {
		s.log.Warn("cannot watch pods; running pods stay as they are until the API server is back", "err", err)
	}
}

func (s *apiStore) recovered() {
	s.mu.Lock()
	was := s.down
	s.down = false
	s.mu.Unlock()
	if was {
		s.log.Info("watching pods again")
	}
}
