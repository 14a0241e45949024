// Package tracing exports spans to an OpenTelemetry collector over gRPC. It makes spans for requests that the agent
// serves, calls to the runtime, and calls to the API server.
//
// Without tracing in the configuration there are no [Spans], and the other parts are built without spans, which then
// cost nothing.
//
// The exporter of the library depends on a gateway between HTTP and gRPC that is larger than the rest of tracing, so
// the single call is implemented here. Spans wait in a queue of bounded length. Spans that cannot be exported are lost
// without other effects.
package tracing
