// Package tracing sends spans to a collector that speaks OpenTelemetry's protocol
// over gRPC, and makes spans at the edges of the agent: requests that it answers,
// calls to the runtime, calls to the API server.
//
// An agent without tracing in its configuration has no [Spans], and the parts are
// built without what would make spans: they then cost nothing.
//
// The library's own exporter brings in a gateway between HTTP and gRPC, which is
// more than the rest of tracing together; the one call that is needed is made here.
// Spans wait in a queue of bounded length. A collector that is away for longer than
// they can wait loses spans, and nothing else.
package tracing
