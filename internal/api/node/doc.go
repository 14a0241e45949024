// Package node registers the Node object at the API server and keeps its status and lease up to date. It also provides
// the Node object to other parts of the agent.
//
// It owns the node's status and the agent's copy of the Node object. It reads the machine, the runtime's health and
// images, and the checks of other parts. The status is computed by the pure function [Project].
//
// Run has six loops:
//
//	health    polls the runtime's status; wakes the status loop when Ready would change
//	register  creates or adopts the Node object, until that has succeeded
//	status    computes and patches the status: on wake-ups, and every UpdateEvery
//	lease     renews the lease; closes dead connections
//	watch     updates the copy of the Node object
//	enforce   sets the node allocatable limits of all pods, until that has succeeded
//
// Without an API server (a nil API) only health, status and enforce run, and the status is not sent.
//
// Locks: Node.mu guards the shared state of the loops. It is held for assignments only, and never during a call.
package node
