package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"keelson/internal/pods/panics"
)

// reconcilePeriod is the minimum time between two repairs of an overwritten status of one
// pod. Two clients that disagree would otherwise overload the API server.
const reconcilePeriod = 10 * time.Second

// seeLocked records the object as the watch shows it. A list may come from a replica of
// the API server that lags behind: older objects are ignored.
func (e *entry) seeLocked(o *v1.Pod) {
	if e.seen == nil || newer(o.ResourceVersion, e.seen.ResourceVersion) {
		e.seen = o
	}
}

// reconcileLocked compares the status in the watch with the API server's response to the
// last PATCH, and queues the status again if another client has overwritten it.
//
// A watch event with an older resourceVersion than the response is from before the PATCH.
// While a PATCH is in progress nothing is decided: the watch may deliver its effect before
// the response arrives.
func (w *Writer) reconcileLocked(e *entry) {
	if w.cfg.API == nil || e.seen == nil || e.busy || e.removed || e.gone || !newer(e.seen.ResourceVersion, e.version) {
		return
	}
	if sameOwn(e.seen.Status, e.written) {
		e.written = e.seen.Status // shared with the store of desired pods, to save memory
		e.urgent = false
		return
	}
	if wait := e.repaired.Add(reconcilePeriod).Sub(w.cfg.Now()); wait > 0 {
		if e.recheck == nil {
			// After Run has ended the entry is queued and never sent, which is harmless.
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
	w.cfg.Log.Info("pod status was overwritten by another client; updating it again",
		"pod", e.ref.Namespace+"/"+e.ref.Name, "podUID", e.uid)
	e.urgent, e.sent, e.repaired = true, false, w.cfg.Now()
	if e.since.IsZero() {
		e.since = e.repaired
	}
}

// newer compares resource versions. It is false if one of them is not a number.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// sameOwn reports whether the owned fields of got equal those of want. Times and
// generations of conditions are not compared.
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

// ownFields is st without conditions and the fields of other clients.
func ownFields(st v1.PodStatus) v1.PodStatus {
	st.Conditions = nil
	st.NominatedNodeName, st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus, st.Resize = "", nil, nil, ""
	st.NodeAllocatableResourceClaimStatuses = nil
	return st
}
