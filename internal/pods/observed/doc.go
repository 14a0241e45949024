// Package observed is the cache of what the container runtime holds for each pod, and the
// agent's PLEG.
//
// It owns one [pod.Runtime] per pod, read from the runtime and never assumed, and calls
// OnChange with the UID when one changed. It reads the runtime's event stream and lists,
// the status of containers, and, once a container has ended, its termination message.
//
// Three sources show that a pod may have changed:
//
//   - An event of the runtime. Often it carries the whole change and no call is needed; otherwise the pod is read. See
//     [digest].
//   - The part that acted on the pod: with [Cache.Confirm], which reads at most what
//     was acted on, or with [Cache.Refresh], when it is not clear what happened.
//   - A list of everything. With a working event stream it is an audit, once a
//     minute; without one it is made every second and only compared: calls are
//     made for pods that changed, so the cost follows changes.
//
// Responses are checked against the request and against what cannot change; an
// inconsistent response leaves the pod as it was last observed. See consistency.go.
//
// Each pod that has to be read has one goroutine, for as long as that takes:
//
//	idle ── event, Refresh, list ──► reading ──► settled? ── yes ──► idle
//	                                    ▲           │ no: failed, or the runtime
//	                                    └─ back-off ┘     is behind its own event
//
// Each read takes one of a few slots and releases it when it takes long, so a pod whose
// calls hang does not delay others.
//
// Lock order: Cache.mu only. OnChange is called without it.
package observed
