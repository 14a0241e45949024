// Package observed knows what the container runtime holds for each pod.
//
// It owns one [pod.Runtime] per pod, read from the runtime and never assumed,
// and tells, by UID, when one changed. It reads the runtime's event stream and
// lists, the status of containers, and, once a container has ended, its
// termination message.
//
// Three sources say that a pod may have changed:
//
//   - An event of the runtime. Often it carries all there is to know and no
//     call is needed; otherwise the pod is read. See [digest].
//   - Whoever acted on the pod: with [Cache.Confirm], which reads at most what
//     was acted on, or with [Cache.Refresh], when it is not clear what happened.
//   - A list of everything. With a working event stream it is an audit, once a
//     minute; without one it is made every second and only compared: calls are
//     made for pods that changed, so the cost follows changes.
//
// What they tell is checked against what was asked and what cannot change; an
// answer that makes no sense leaves the pod as it was seen last. See sense.go.
//
// Each pod that needs reading has one goroutine, for as long as it needs it:
//
//	idle ── event, Refresh, list ──► reading ──► settled? ── yes ──► idle
//	                                    ▲           │ no: failed, or the runtime
//	                                    └─ back-off ┘     is behind its own event
//
// Reads take one of a few slots and give it back when they take long, so a pod
// whose calls hang keeps nobody else waiting.
//
// Lock order: Cache.mu only. OnChange is called without it.
package observed
