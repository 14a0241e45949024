package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"keelson/internal/node/panics"
)

// reconcilePeriod is the least time between two corrections of what another client
// wrote over the status of the same pod. Two writers that disagree would otherwise
// keep the API server busy.
const reconcilePeriod = 10 * time.Second

// seeLocked takes in the object as the watch shows it. A list may be answered from a
// replica of the API server that lags behind: what is older than what was seen does
// not count.
func (e *entry) seeLocked(o *v1.Pod) {
	if e.seen == nil || newer(o.ResourceVersion, e.seen.ResourceVersion) {
		e.seen = o
	}
}

// reconcileLocked compares what the watch shows with what the API server made of the
// last status, and has the status sent again if another client has written over it.
//
// The response to a PATCH has the resourceVersion after it. A watch event with an
// older version is from before that PATCH. While a PATCH is under way nothing is
// decided: the watch may deliver its effect before its response arrives.
func (w *Writer) reconcileLocked(e *entry) {
	if w.cfg.API == nil || e.seen == nil || e.busy || e.removed || e.gone || !newer(e.seen.ResourceVersion, e.version) {
		return
	}
	if sameOwn(e.seen.Status, e.told) {
		e.told = e.seen.Status // the store of pods has the same object: one copy is enough
		e.urgent = false
		return
	}
	if wait := e.repaired.Add(reconcilePeriod).Sub(w.cfg.Now()); wait > 0 {
		if e.recheck == nil {
			// After Run has ended the entry is queued and not taken: harmless.
			e.recheck = panics.Again(w.cfg.Log, "statuses", wait, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				e.recheck = nil
				w.reconcileLocked(e)
				w.enqueueLocked(e)
			})
		}
		return
	}
	w.cfg.Log.Info("pod status was overwritten by another client; writing it again",
		"pod", e.ref.Namespace+"/"+e.ref.Name, "podUID", e.uid)
	e.urgent, e.sent, e.repaired = true, false, w.cfg.Now()
	if e.since.IsZero() {
		e.since = e.repaired
	}
}

// newer compares resource versions. It is false where one of them is not a number.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// sameOwn reports whether got has what the node agent wrote in want, and nothing else
// in its place. Times and generations of conditions follow the rest.
func sameOwn(want, got v1.PodStatus) bool {
	for _, c := range want.Conditions {
		if !isOwn(c) {
			continue
		}
		g := find(got.Conditions, c.Type)
		if g == nil || g.Status != c.Status || g.Reason != c.Reason || g.Message != c.Message {
			return false
		}
	}
	for _, c := range got.Conditions {
		if isOwn(c) && c.Type != v1.DisruptionTarget && find(want.Conditions, c.Type) == nil {
			return false
		}
	}
	return equality.Semantic.DeepEqual(ownFields(want), ownFields(got))
}

// ownFields is st without its conditions and what others write.
func ownFields(st v1.PodStatus) v1.PodStatus {
	st.Conditions = nil
	st.NominatedNodeName, st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus, st.Resize = "", nil, nil, ""
	st.NodeAllocatableResourceClaimStatuses = nil
	return st
}
