// Package socket creates the UNIX sockets on which the agent serves clients on the node.
package socket
