// Package cri speaks the Container Runtime Interface, version v1, over a unix
// socket: one method per call, and the conversions from the runtime's messages
// to the values of package pod.
//
// It owns the connection and nothing else: no cache, no retry of a call. A
// connection that breaks is made again in the background, within about a
// second of the runtime's return; calls made meanwhile fail with an error that
// [IsUnavailable] recognises. Every call has a deadline (see [Config]), so a
// hung runtime costs a caller time, never the goroutine for ever. A call that
// changes something is not cancelled with its context once it has begun.
//
// It uses the generated stubs of k8s.io/cri-api over gRPC directly.
// k8s.io/cri-client would do the same job, but it draws in OpenTelemetry and
// klog, and it logs and retries by its own rules.
package cri
