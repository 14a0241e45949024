// Package serve contains the packages of the agent's APIs. Package server serves HTTPS on the node's port. Packages
// podsapi and podresources serve gRPC on UNIX sockets of the node, which package socket creates. Package tracing
// exports spans to a collector.
//
// It has no code of its own.
package serve
