package podsync

import (
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// claimTurn keeps a static pod back while another of the same full name is not
// gone. What runs already has its turn.
func (w *worker) claimTurn(have pod.Runtime) bool {
	if !pod.IsStatic(w.spec) {
		return true
	}
	name := pod.FullName(w.spec)
	first := w.s.claim(name, w.uid)
	return !have.Empty() || first && !w.s.leftOver(name, w.uid)
}

// leftOver reports whether the runtime holds something of another static pod of
// the full name: of a version that was replaced while no agent ran. Its worker
// stands in no line; it wakes who is first in that of its name when it ends.
func (s *Syncer) leftOver(name string, than types.UID) bool {
	for _, uid := range s.cfg.Observed.UIDs() {
		if have, _ := s.cfg.Observed.Get(uid); uid != than && have.Source() != pod.SourceAPI && have.FullName() == name {
			return true
		}
	}
	return false
}

// leaveName lets the next pod of the full name have its turn.
func (w *worker) leaveName() {
	switch {
	case w.spec != nil && pod.IsStatic(w.spec):
		w.s.release(pod.FullName(w.spec), w.uid)
	case w.spec == nil && w.namesake != "":
		w.s.release(w.namesake, w.uid)
	}
}

// unknown reports whether no source holds a pod that none has shown so far. What
// the runtime holds of a static pod waits for the sources of such pods alone: the
// API server may be what its next version is to bring back.
func (w *worker) unknown() bool {
	d := w.s.cfg.Desired
	if have, _ := w.s.cfg.Observed.Get(w.uid); have.Source() != pod.SourceAPI {
		return d.Heard(pod.SourceFile) && d.Heard(pod.SourceHTTP)
	}
	return d.Ready()
}
