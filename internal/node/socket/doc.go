// Package socket makes the sockets at which the agent answers programs of its node.
package socket
