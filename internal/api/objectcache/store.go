package objectcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// errStandalone is the cause of read errors without an API server.
var errStandalone = errors.New("no API server configured")

// Config holds the configuration of a Store. All fields but Client are required.
type Config struct {
	// Client is for the core/v1 group. Nil: there is no API server.
	Client rest.Interface
	// OnChange is called after an object was added, changed or deleted, with the pods that refer to it. It is not
	// called for the first answer if a reader has waited for it. It must not block.
	OnChange func(pods []types.UID, kind Kind, namespace, name string)
	// Detect is the strategy; Watch if empty.
	Detect Detection
	// Period returns how often an object that is not watched is read.
	Period func() time.Duration
	Log    *slog.Logger
}

// Store caches the ConfigMaps and Secrets that pods of this node refer to.
type Store struct {
	cfg Config
	wg  sync.WaitGroup // of the watches

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	pods    map[types.UID]map[Ref]struct{}
	entries map[Ref]*entry
}

// object is the common interface of *v1.ConfigMap and *v1.Secret.
type object interface {
	runtime.Object
	metav1.Object
}

// entry is the last state of an object. It is guarded by Store.mu.
type entry struct {
	ref    Ref
	pods   map[types.UID]struct{}
	stop   context.CancelFunc // ends the watch; nil: not started
	known  chan struct{}      // closed by the first answer
	obj    object             // nil: does not exist, or is not known yet
	rv     string             // resource version of the last answer
	err    error              // why there is no answer yet
	missed bool               // a reader gave up before the answer
	stale  bool               // the next reader reads from the API server
	turn   chan struct{}      // held during a read, so that answers are stored in order
}

// New returns a Store. Nothing is watched before Run.
func New(cfg Config) *Store {
	return &Store{cfg: cfg, pods: map[types.UID]map[Ref]struct{}{}, entries: map[Ref]*entry{}}
}

// Run watches the objects of registered pods until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	for _, e := range s.entries {
		s.startLocked(e)
	}
	s.mu.Unlock()

	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil // no watch starts any more
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// Register makes the objects that p refers to readable, until Unregister. It updates a pod that is registered already.
func (s *Store) Register(p *v1.Pod) {
	if s.cfg.Client == nil {
		return
	}
	refs := RefsOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.pods[p.UID]
	s.pods[p.UID] = refs
	for r := range refs {
		if _, ok := old[r]; ok {
			continue
		}
		e := s.entries[r]
		if e == nil {
			e = &entry{ref: r, pods: map[types.UID]struct{}{}, known: make(chan struct{}), turn: make(chan struct{}, 1)}
			s.entries[r] = e
			s.startLocked(e)
		} else {
			e.stale = s.cfg.Detect == Cache
		}
		e.pods[p.UID] = struct{}{}
	}
	for r := range old {
		if _, ok := refs[r]; !ok {
			s.dropLocked(r, p.UID)
		}
	}
}

// Unregister reverses Register. It does nothing for an unknown pod.
func (s *Store) Unregister(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.pods[uid] {
		s.dropLocked(r, uid)
	}
	delete(s.pods, uid)
}

func (s *Store) dropLocked(r Ref, uid types.UID) {
	e := s.entries[r]
	delete(e.pods, uid)
	if len(e.pods) > 0 {
		return
	}
	delete(s.entries, r)
	if e.stop != nil {
		e.stop()
	}
}

func (s *Store) startLocked(e *entry) {
	if s.ctx == nil {
		return
	}
	ctx, stop := context.WithCancel(s.ctx)
	e.stop = stop
	s.wg.Go(func() {
		defer stop()
		if s.cfg.Detect == Get || s.cfg.Detect == Cache {
			s.poll(ctx, e)
		} else {
			s.follow(ctx, e)
		}
	})
}

// ConfigMap reads a ConfigMap that a registered pod refers to. It waits for the first answer of the API server until
// ctx ends. The result is shared and must not be modified.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	o, err := s.read(ctx, Ref{ConfigMap, namespace, name})
	if err != nil {
		return nil, err
	}
	return o.(*v1.ConfigMap), nil
}

// Secret reads a Secret that a registered pod refers to, like ConfigMap.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	o, err := s.read(ctx, Ref{Secret, namespace, name})
	if err != nil {
		return nil, err
	}
	return o.(*v1.Secret), nil
}

func (s *Store) read(ctx context.Context, r Ref) (object, error) {
	if s.cfg.Client == nil {
		return nil, fmt.Errorf("cannot read %s: %w", r, errStandalone)
	}
	s.mu.Lock()
	e := s.entries[r]
	s.mu.Unlock()
	if e == nil {
		// Same text as upstream.
		return nil, fmt.Errorf("object %q/%q not registered", r.Namespace, r.Name)
	}
	if err := s.refresh(ctx, e); err != nil {
		return nil, err
	}
	select {
	case <-e.known:
	default:
		select {
		case <-e.known:
		case <-ctx.Done():
			if err := s.giveUp(e); err != nil {
				return nil, err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.obj == nil {
		return nil, apierrors.NewNotFound(v1.Resource(string(r.Kind)), r.Name)
	}
	return e.obj, nil
}

// giveUp notes that a reader stops waiting, so that the answer is reported as a change. It returns nil if the answer
// came in the meantime.
func (s *Store) giveUp(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-e.known:
		return nil
	default:
	}
	e.missed = true
	if e.err != nil {
		return fmt.Errorf("cannot read %s: %w", e.ref, e.err)
	}
	// Same text as upstream.
	return fmt.Errorf("failed to sync %s cache: timed out waiting for the condition", e.ref.Kind)
}

// put stores an answer of the API server: the object, or nil if it does not exist.
func (s *Store) put(e *entry, obj object, rv string) {
	if obj != nil {
		obj.SetManagedFields(nil) // not used, and often larger than the rest
	}
	pods, changed := s.keep(e, obj, rv)
	if changed && len(pods) > 0 {
		s.cfg.OnChange(pods, e.ref.Kind, e.ref.Namespace, e.ref.Name)
	}
}

// keep stores an answer. It returns the pods that refer to the object, and whether it is a change for them.
func (s *Store) keep(e *entry, obj object, rv string) (pods []types.UID, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := false
	select {
	case <-e.known:
	default:
		first = true
		close(e.known)
	}
	changed = e.missed
	if !first {
		changed = changed || (obj == nil) != (e.obj == nil) || rv != e.rv
	}
	e.obj, e.rv, e.err, e.missed = obj, rv, nil, false
	return slices.Collect(maps.Keys(e.pods)), changed
}

// fail stores the error of a read. A known object is kept.
func (s *Store) fail(e *entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.err = err
}

// seen returns the resource version of the last answer.
func (s *Store) seen(e *entry) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.rv
}
