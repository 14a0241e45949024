// Package object keeps what pods of this node read from the API server by name:
// ConfigMaps, Secrets, and tokens of service accounts.
//
// A [Store] owns one watch for each ConfigMap and Secret that a registered pod
// refers to, shared by all pods that do. The watch starts with the first
// reference and ends with the last, or when the object turns out to be
// immutable. Readers are answered from memory; only the first reader of an
// object waits, and only until the API server has told whether it exists.
//
//	unknown ──► present ◄──► missing
//	   │           ▲             ▲
//	   └───────────┴─────────────┘   never back to unknown while referred to
//
// A watch is opened without a resource version, which gives the current object
// as its first event: one request for an object that exists, none while nothing
// changes. Silence means that there may be no such object; a read of that one
// object then tells. A server that shows an older state than was seen before is
// asked the same way. A broken watch is opened again with back-off, and until
// then the last state that was seen is served.
//
// Where the configuration asks for it, objects are not watched but read again
// once in a [Config.Period]; with [Get] each reader asks the API server besides,
// with [Cache] the first one after a pod was registered.
//
// A [Tokens] owns the service account tokens of pods and tells when each wants
// to be renewed.
//
// Lock order: Store.mu is taken alone and never held over a call to the outside.
package object
