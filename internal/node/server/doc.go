// Package server answers HTTP for the node: the API server and operators on the
// authenticated port, anybody on the read-only port, and a health check on
// loopback.
//
// It owns the listeners and the list of endpoints (table.go), which is the one
// place that says what is served, under which methods, and which right a caller
// needs. Routing, authorisation, the path label of the metrics, and the tests
// are made from that list. Everything it answers with is asked from others
// through the small interfaces of Config; it keeps no copy of a pod.
//
// A request passes, in this order: metrics, authentication, authorisation,
// routing, the endpoint. Package access below it tells who a caller is and what
// it may do; package cert holds certificates that change on disk.
//
// Streams (exec, attach, port-forward) are not interpreted here: the runtime is
// asked for an address, and the caller's connection is joined to it. The one
// exception is a caller that speaks a WebSocket protocol the runtime does not
// know, whose frames are translated to SPDY.
package server
