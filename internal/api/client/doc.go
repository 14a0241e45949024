// Package client is the client of the API server.
//
// It owns the connection, the credentials of the kubeconfig and the list of kinds that the agent uses. Only these are
// in its scheme. It does not use client-go's generated clients, because they link every API group.
//
// Each kind is a [Resource] with the usual verbs. Pods, nodes and service accounts have some more methods. Every call
// except lists and watches has a timeout, so that a server that does not answer cannot block its callers. Heartbeats
// (nodes, leases) have a shorter timeout and are exempt from the rate limit of other calls.
//
// After a network partition broken connections may still look open. [Client.CloseConnections] closes them. The lease
// renewal calls it, because its requests are the first to fail.
//
// [Events] records events at the API server, and [LogEvents] in the log of a standalone agent.
package client
