package desired

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Pod is one desired pod. Both objects are shared and immutable.
type Pod struct {
	Spec   *v1.Pod
	Source pod.Source
	// Mirror is the mirror pod of a static pod; nil if there is none, or only one of an older
	// version of the pod.
	Mirror *v1.Pod
}

// Source finds pods in one place.
type Source interface {
	// Name is one of the three kinds; a Store has at most one of each.
	Name() pod.Source
	// Run delivers pods to the sink until ctx ends. The first Replace means that the source
	// was read once.
	Run(ctx context.Context, to Sink) error
}

// Sink receives the pods of a source.
type Sink interface {
	Replace([]*v1.Pod) // all pods of the source
	Set(*v1.Pod)       // a new or changed pod
	Remove(types.UID)  // a pod that the source no longer has
}

// Config holds what a Store is built from. Fields are required unless their comment says
// otherwise.
type Config struct {
	NodeName string
	Sources  []Source
	Events   pod.Events
	OnChange func(types.UID) // called after each change of a pod or its mirror; must not block
	// OnForced, if not nil, is called before OnChange when the API server no longer has
	// a pod that was being deleted. It must not block.
	OnForced func(types.UID)
	// OnUpdate, if not nil, is called with the old and the new version of an updated pod. It
	// must not block.
	OnUpdate func(old, p *v1.Pod)
	// OnSourceReady, if not nil, is called when a source has delivered for the first time: a
	// pod that is missing then does not exist. It must not block.
	OnSourceReady func()
	// Mirrors configures mirror pods; nil without an API server.
	Mirrors *MirrorConfig
	Log     *slog.Logger
	Now     func() time.Time // nil: the time of day
}

// Store holds the desired pods. Its methods are safe for concurrent use and do not block.
type Store struct {
	cfg     Config
	mirrors *Mirrors // nil without an API server
	ready   chan struct{}

	mu      sync.RWMutex
	pods    map[pod.Source]map[types.UID]*v1.Pod
	shown   map[types.UID]*v1.Pod // mirror pods by their own UID
	waiting map[pod.Source]bool   // sources that have not delivered
	arrival time.Time             // the latest that was assigned to a pod
}

// New makes a Store. Nothing is read before Run.
func New(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{
		cfg:     cfg,
		ready:   make(chan struct{}),
		pods:    map[pod.Source]map[types.UID]*v1.Pod{},
		shown:   map[types.UID]*v1.Pod{},
		waiting: map[pod.Source]bool{},
	}
	for _, src := range cfg.Sources {
		s.pods[src.Name()] = map[types.UID]*v1.Pod{}
		s.waiting[src.Name()] = true
	}
	if len(cfg.Sources) == 0 {
		close(s.ready)
	}
	if cfg.Mirrors != nil {
		s.mirrors = newMirrors(*cfg.Mirrors, s, cfg.NodeName, cfg.Log, cfg.Now)
	}
	return s
}

// Run reads the sources and reconciles the mirror pods until ctx ends, or one of them
// fails.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, src := range s.cfg.Sources {
		g.Go(func() error {
			if err := src.Run(ctx, &sink{s, src.Name()}); err != nil {
				return fmt.Errorf("read pods from %s: %w", src.Name(), err)
			}
			return nil
		})
	}
	if s.mirrors != nil {
		g.Go(func() error { return s.mirrors.run(ctx) })
	}
	return g.Wait()
}

// Get returns the specification of a pod and, for a static pod, its mirror pod if there is
// one.
func (s *Store) Get(uid types.UID) (spec, mirror *v1.Pod, known bool) {
	p, ok := s.Lookup(uid)
	return p.Spec, p.Mirror, ok
}

// Lookup is Get with the source.
func (s *Store) Lookup(uid types.UID) (Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for source, pods := range s.pods {
		if p, ok := pods[uid]; ok {
			return s.describeLocked(p, source), true
		}
	}
	return Pod{}, false
}

// UIDs returns the UIDs of all pods.
func (s *Store) UIDs() []types.UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []types.UID
	for _, pods := range s.pods {
		out = slices.AppendSeq(out, maps.Keys(pods))
	}
	return out
}

// All returns the pods without mirror pods, sorted by namespace and name.
func (s *Store) All() []Pod {
	s.mu.RLock()
	var out []Pod
	for source, pods := range s.pods {
		for _, p := range pods {
			out = append(out, s.describeLocked(p, source))
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.Namespace, b.Spec.Namespace), cmp.Compare(a.Spec.Name, b.Spec.Name),
			cmp.Compare(a.Spec.UID, b.Spec.UID))
	})
	return out
}

// ByName finds a pod by its name. Where two sources have a pod of one name, the
// API server's is found last.
func (s *Store) ByName(namespace, name string) (Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, source := range []pod.Source{pod.SourceFile, pod.SourceHTTP, pod.SourceAPI} {
		for _, p := range s.pods[source] {
			if p.Name == name && p.Namespace == namespace {
				return s.describeLocked(p, source), true
			}
		}
	}
	return Pod{}, false
}

// Ready reports whether every source has delivered once.
func (s *Store) Ready() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// SourceReady reports whether a source has delivered once, or is not used.
func (s *Store) SourceReady(source pod.Source) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.waiting[source]
}

// ReadyC is closed when every source has delivered once.
func (s *Store) ReadyC() <-chan struct{} { return s.ready }

// SyncMirrors requests a reconciliation of the mirror pods: the node was registered, or a
// pod has terminated whose mirror pod had to stay until then.
func (s *Store) SyncMirrors() {
	if s.mirrors != nil {
		s.mirrors.poke()
	}
}

func (s *Store) describeLocked(p *v1.Pod, source pod.Source) Pod {
	out := Pod{Spec: p, Source: source}
	if source == pod.SourceAPI {
		return out
	}
	for _, m := range s.shown {
		if isMirrorOf(m, p) {
			out.Mirror = m
		}
	}
	return out
}

// isMirrorOf reports whether m shows this version of the static pod p.
func isMirrorOf(m, p *v1.Pod) bool {
	return m.Name == p.Name && m.Namespace == p.Namespace &&
		m.Annotations[pod.AnnotationConfigMirror] == p.Annotations[pod.AnnotationConfigHash]
}

// sink is the Sink of one source.
type sink struct {
	s    *Store
	name pod.Source
}

func (k *sink) Replace(pods []*v1.Pod) {
	pods = k.s.dropDuplicates(k.name, pods)
	keep := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		keep[p.UID] = true
	}
	var gone []types.UID
	k.s.mu.RLock()
	for uid := range k.s.pods[k.name] {
		if !keep[uid] {
			gone = append(gone, uid)
		}
	}
	if k.name == pod.SourceAPI {
		for uid := range k.s.shown {
			if !keep[uid] {
				gone = append(gone, uid)
			}
		}
	}
	k.s.mu.RUnlock()
	// The old version of a static pod is removed before the new one is added.
	for _, uid := range gone {
		k.Remove(uid)
	}
	for _, p := range pods {
		k.Set(p)
	}
	k.s.delivered(k.name)
}

func (k *sink) Set(p *v1.Pod) {
	s := k.s
	s.mu.Lock()
	if k.name == pod.SourceAPI && pod.IsMirror(p) {
		old := s.shown[p.UID]
		s.shown[p.UID] = p
		static, known := s.staticLocked(pod.FullName(p))
		s.mu.Unlock()
		if old == nil || classify(old, p) != "" {
			s.mirrorChanged(static, known)
		}
		return
	}
	old := s.pods[k.name][p.UID]
	p = s.markLocked(p, old, k.name)
	s.pods[k.name][p.UID] = p
	s.mu.Unlock()

	change := changeAdd
	if old != nil {
		change = classify(old, p)
	}
	if change == "" {
		return
	}
	if (change == changeUpdate || change == changeDelete) && s.cfg.OnUpdate != nil {
		s.cfg.OnUpdate(old, p)
	}
	s.changed(change, k.name, p)
}

func (k *sink) Remove(uid types.UID) {
	s := k.s
	s.mu.Lock()
	if m, ok := s.shown[uid]; ok && k.name == pod.SourceAPI {
		delete(s.shown, uid)
		static, known := s.staticLocked(pod.FullName(m))
		s.mu.Unlock()
		s.mirrorChanged(static, known)
		return
	}
	p, ok := s.pods[k.name][uid]
	delete(s.pods[k.name], uid)
	s.mu.Unlock()
	if ok {
		if k.name == pod.SourceAPI && p.DeletionTimestamp != nil && s.cfg.OnForced != nil {
			s.cfg.OnForced(uid)
		}
		s.changed(changeRemove, k.name, p)
	}
}

// changed logs a change and calls OnChange.
func (s *Store) changed(change string, source pod.Source, p *v1.Pod) {
	s.cfg.Log.Log(context.Background(), slog.Level(-2), change, "source", source, "pod", p.Namespace+"/"+p.Name,
		"podUID", p.UID)
	s.cfg.OnChange(p.UID)
	if source != pod.SourceAPI {
		s.SyncMirrors()
	}
}

func (s *Store) mirrorChanged(static types.UID, known bool) {
	if known {
		s.cfg.OnChange(static)
	}
	s.SyncMirrors()
}

// staticLocked finds the static pod of a full name.
func (s *Store) staticLocked(fullName string) (types.UID, bool) {
	for _, source := range []pod.Source{pod.SourceFile, pod.SourceHTTP} {
		for uid, p := range s.pods[source] {
			if pod.FullName(p) == fullName {
				return uid, true
			}
		}
	}
	return "", false
}

func (s *Store) delivered(source pod.Source) {
	s.mu.Lock()
	first := s.waiting[source]
	delete(s.waiting, source)
	if first && len(s.waiting) == 0 {
		close(s.ready)
	}
	s.mu.Unlock()
	if first && s.cfg.OnSourceReady != nil {
		s.cfg.OnSourceReady()
	}
}

// markLocked returns the pod with the agent's own annotations: its source and when it was
// first seen. They replace annotations of the same names. No two arrivals have the same
// time: a different time shows that the pod was removed and added again in between.
func (s *Store) markLocked(p, old *v1.Pod, source pod.Source) *v1.Pod {
	var seen string
	if old != nil {
		seen = old.Annotations[pod.AnnotationConfigSeen]
	} else {
		now := s.cfg.Now()
		if since := s.arrival.Sub(now); 0 <= since && since < time.Second { // not if the clock was set back
			now = s.arrival.Add(1)
		}
		s.arrival, seen = now, now.Format(time.RFC3339Nano)
	}
	// A shallow copy with a map of its own: the rest is shared and not changed.
	marked := *p
	marked.Annotations = maps.Clone(p.Annotations)
	if marked.Annotations == nil {
		marked.Annotations = map[string]string{}
	}
	marked.Annotations[pod.AnnotationConfigSource] = string(source)
	marked.Annotations[pod.AnnotationConfigSeen] = seen
	return &marked
}

// dropDuplicates keeps one pod of each name, as upstream does: the last of a directory,
// otherwise the first. Only static pods can have the same name.
func (s *Store) dropDuplicates(source pod.Source, pods []*v1.Pod) []*v1.Pod {
	if source == pod.SourceAPI {
		return pods
	}
	kept := map[string]*v1.Pod{}
	for _, p := range pods {
		name := pod.FullName(p)
		if source == pod.SourceFile || kept[name] == nil {
			kept[name] = p
		}
	}
	var out []*v1.Pod
	for _, p := range pods {
		if kept[pod.FullName(p)] == p {
			out = append(out, p)
		} else {
			s.reportDuplicate(source, p)
		}
	}
	return out
}

func (s *Store) reportDuplicate(source pod.Source, p *v1.Pod) {
	message := fmt.Sprintf("Error validating pod %s(%s) from %s due to duplicate pod name %q, ignoring",
		pod.FullName(p), p.UID, source, p.Name)
	s.cfg.Log.Warn("ignored pod with duplicate name",
		"source", source, "pod", p.Namespace+"/"+p.Name, "podUID", p.UID)
	s.cfg.Events.Pod(p, "", v1.EventTypeWarning, pod.EventFailedValidation, message)
}
