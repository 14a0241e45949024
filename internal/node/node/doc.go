// Package node shows the machine to the API server as a Node: it registers it,
// keeps its status true and its lease fresh, and tells the rest of the agent what
// the API server says about it.
//
// It owns the node's status and the agent's copy of the node object. It reads the
// machine, the runtime's health and images, and the checks that other parts hand
// in; what the status says about them is decided by the pure [Project].
//
// Run keeps five loops:
//
//	health    asks the runtime for its state; wakes status when Ready would change
//	register  creates or adopts the node object, until that worked once
//	status    projects and patches: on a wake-up, and every UpdateEvery
//	lease     renews the lease; drops dead connections
//	watch     keeps the copy of the node object
//
// Without an API server (a nil API) only health and status run, and status stays
// here.
//
// Locks: Node.mu guards what Node's methods return and what the loops tell each
// other. It is held for assignments only and is never held over a call.
package node
