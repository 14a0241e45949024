// Package socket makes UNIX sockets on which the agent serves programs of the node.
package socket
