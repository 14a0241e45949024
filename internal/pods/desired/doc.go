// Package desired owns what should run: the specifications of all pods of this
// node, from the API server, from manifest files and from a URL, and the mirror
// pods by which the API server shows the last two kinds.
//
// A [Source] finds pods and hands them to the [Store]: an [API], [Files] or
// [URL]. The Store compares what it is handed with what it has and calls
// OnChange with the UID of each pod that differs; who is woken asks the Store
// for the truth. Specifications are never changed once they are in the Store.
//
// A pod is there from its first sight until its source no longer has it. Pods
// being deleted are still there, with their deletion timestamp. Until every
// source has delivered once, a pod that is missing may only be unheard of:
// see [Store.Ready].
//
// Static pods (files, URL) get defaults and are checked here as the API server
// would, because no API server has seen them. A manifest that turns bad keeps
// the pod of its last good version running; docs/decisions/0003 tells why.
//
// Mirror pods are kept by [Mirrors], which owns the API objects' existence.
// Their statuses are written by package status.
//
// Locks: Store.mu guards the pods and nothing is called while it is held;
// Mirrors has state of one goroutine only.
package desired
