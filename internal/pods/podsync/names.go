package podsync

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// names are the full names of static pods. Only one pod of a name runs at a time; the others wait for their turn in the
// order of their arrival.
type names struct {
	mu      sync.Mutex
	holders map[string][]types.UID // only the first may run
}

// claim asks for a full name and reports whether the pod may run under it.
func (n *names) claim(name string, uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := n.holders[name]
	if i := slices.Index(line, uid); i >= 0 {
		return i == 0
	}
	if n.holders == nil {
		n.holders = map[string][]types.UID{}
	}
	n.holders[name] = append(line, uid)
	return len(line) == 0
}

// release takes a pod out of the line for a name, and returns the pod that is first in it then, if there is one.
func (n *names) release(name string, uid types.UID) (next types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := slices.DeleteFunc(slices.Clone(n.holders[name]), func(u types.UID) bool { return u == uid })
	if len(line) == 0 {
		delete(n.holders, name)
		return ""
	}
	n.holders[name] = line
	return line[0]
}

// line are the pods that hold a name or wait for it.
func (n *names) line(name string) []types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.holders[name])
}

// MayClaim reports whether the pod could run now as far as its full name goes.
func (s *Syncer) MayClaim(p *v1.Pod) bool {
	if !pod.IsStatic(p) {
		return true
	}
	line := s.names.line(pod.FullName(p))
	return len(line) == 0 || line[0] == p.UID
}

// Holds reports whether a static pod of the full name is there or still ending.
func (s *Syncer) Holds(fullName string) bool { return len(s.names.line(fullName)) > 0 }

// HoldsOlder reports whether another static pod than this one is there or still
// ending under the full name.
func (s *Syncer) HoldsOlder(fullName string, than types.UID) bool {
	return slices.ContainsFunc(s.names.line(fullName), func(uid types.UID) bool { return uid != than })
}

// nameTaken holds a static pod back while another of the same full name is not
// gone. What runs already has its turn.
func (g gatherer) nameTaken(have pod.Runtime) bool {
	if !pod.IsStatic(g.w.source.spec) {
		return false
	}
	name := pod.FullName(g.w.source.spec)
	first := g.w.s.names.claim(name, g.w.uid)
	return have.Empty() && (!first || g.w.s.leftOver(name, g.w.uid))
}

// leftOver reports whether the runtime holds something of another static pod of
// the full name: of a version that was replaced while no agent ran. Its worker
// waits in no line; it wakes the first in that of its name when it ends.
func (s *Syncer) leftOver(name string, than types.UID) bool {
	for _, uid := range s.cfg.Observed.UIDs() {
		have, read := s.cfg.Observed.Get(uid)
		if uid != than && have.FullName() == name && s.mayBeStatic(have, read) {
			return true
		}
	}
	return false
}

// mayBeStatic reports whether a pod that the runtime holds is static. While it could not be read, that is not known of
// a pod that no source has.
func (s *Syncer) mayBeStatic(have pod.Runtime, read bool) bool {
	if read {
		return have.Source() != pod.SourceAPI
	}
	spec, _, known := s.cfg.Desired.Get(have.UID)
	return !known || pod.IsStatic(spec)
}

// noteName notes the full name that a pod which no source has holds: others may wait for it. A pod of the API server
// holds none, which shows when it was read.
func (w *worker) noteName(have pod.Runtime, read bool) {
	switch {
	case !read && have.Name != "", read && have.Source() != pod.SourceAPI:
		w.source.staticFullName = have.FullName()
	case read && len(have.Sandboxes) > 0 && w.source.staticFullName != "":
		w.leaveName()
		w.source.staticFullName = ""
	}
}

// leaveName lets the next pod of the full name have its turn.
func (w *worker) leaveName() {
	name := w.source.staticFullName
	if w.source.spec != nil {
		if !pod.IsStatic(w.source.spec) {
			return
		}
		name = pod.FullName(w.source.spec)
	}
	if name == "" {
		return
	}
	if next := w.s.names.release(name, w.uid); next != "" {
		w.s.Wake(next)
	}
	w.s.cfg.OnNameFree()
}
