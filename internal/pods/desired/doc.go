// Package desired owns the desired pods of this node: their specifications from the API
// server, from manifest files and from a URL, and the mirror pods of the last two kinds.
//
// A [Source] delivers pods to the [Store]: an [API], [Files] or [URL]. The Store compares
// each delivery with its content and calls OnChange with the UID of each pod that differs;
// the receiver reads the pod from the Store. Specifications in the Store are immutable.
//
// A pod stays in the Store until its source no longer has it. Pods being deleted stay,
// with their deletion timestamp. Until every source has delivered once, a pod that is
// missing may still be delivered: see [Store.Ready].
//
// Package manifest compiles the manifests of static pods. A manifest that becomes
// invalid keeps the pod of its last valid version running; docs/decisions/0003 has
// the reason.
//
// [Mirrors] creates and deletes mirror pods. Package status writes their statuses.
//
// Locks: Store.mu guards the pods and no callback runs while it is held; the state of
// Mirrors belongs to one goroutine.
package desired
