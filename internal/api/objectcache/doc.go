// Package objectcache caches objects of the API server that pods of this node refer to: ConfigMaps, Secrets, and tokens
// of service accounts.
//
// A [Store] has one watch for each ConfigMap and Secret that a registered pod refers to, shared by all pods that do.
// The watch starts with the first reference and ends with the last, or when the object is immutable. Objects are read
// from memory. Only the first reader of an object waits until the API server has answered whether it exists.
//
//	unknown ──► present ◄──► missing
//	   │           ▲             ▲
//	   └───────────┴─────────────┘   never back to unknown while referred to
//
// A watch is opened without a resource version, so that its first event is the current object: one request for an
// object that exists, and none without changes. If there is no event, the object may not exist, and is read to find
// out. It is also read if a watch starts with an older state than the last one. A broken watch is opened again with
// back-off, and the last state is served meanwhile.
//
// With the strategies [Get] and [Cache] of the configuration, objects are not watched but read once per
// [Config.Period]. With [Get] each reader also reads from the API server, and with [Cache] the first reader after a pod
// was registered.
//
// [Tokens] owns the service account tokens of pods, and the time when each has to be renewed. [Certificates] requests
// certificates for pods.
//
// Lock order: Store.mu is taken alone and never held during a call.
package objectcache
