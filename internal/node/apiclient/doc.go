// Package apiclient speaks to the API server.
//
// It owns the connection, the credentials of the kubeconfig and the list of
// kinds the agent uses; only those are in its scheme, which is why nothing here
// imports client-go's generated clients: they link every API group there is.
//
// Each kind is a [Resource] with the plain verbs. Pods, nodes and service
// accounts have a few methods more. Every call but a list or a watch ends within
// its time limit, so a server that went silent delays its caller, never holds
// it. Heartbeats (nodes, leases) have a shorter limit and do not wait behind the
// rate limit that the other calls share.
//
// A partition leaves connections that look alive; [Client.CloseConnections]
// drops them, and whoever notices first (the lease renewer) calls it.
//
// [Events] records events at the API server, [LogEvents] in the log of an agent
// that has no server.
package apiclient
