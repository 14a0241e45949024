// Package cri is a client of the Container Runtime Interface, version v1, over a unix socket: one
// method per call, and conversions of the messages to the types of package pod.
//
// It owns the connection and nothing else: it neither caches nor retries. A broken connection is
// restored in the background, within about a second of the runtime's return. Calls made meanwhile
// fail with an error that satisfies [IsUnavailable]. Every call has a deadline (see [Config]), so a
// runtime that hangs cannot block a goroutine for ever. A call that changes state is not cancelled
// with its context once it has begun.
//
// It uses the generated stubs of k8s.io/cri-api over gRPC directly. k8s.io/cri-client would do the
// same, but depends on OpenTelemetry and klog, and logs and retries by its own rules.
package cri
