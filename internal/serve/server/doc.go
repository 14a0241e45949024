// Package server is the HTTP server of the node: the authenticated port for the API server and operators, the read-only
// port, and a health check on loopback.
//
// It owns the listeners and the table of endpoints (table.go), which defines the paths, their methods, and the
// subresources for authorization. Routing, authorization, the path label of the metrics, and the tests are derived from
// that table. The content of responses comes from other parts through the small interfaces of Config. The server keeps
// no copy of a pod.
//
// A request passes metrics, authentication, authorization, routing, and the endpoint, in this order. Package access
// authenticates and authorizes requests, and package cert reloads certificates.
//
// Streams (exec, attach, port-forward) are not interpreted: the runtime returns an address, and the client's connection
// is joined to it. The exceptions are WebSocket protocols that the runtime does not support. They are translated to
// SPDY.
package server
