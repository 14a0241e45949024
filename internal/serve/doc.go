// Package serve is the room of the agent's APIs: server answers HTTPS on the node's port, podsapi and podresources
// answer gRPC on sockets of the node, which package socket makes, and tracing sends spans to a collector.
//
// It holds no code of its own.
package serve
