// Package handlers finds out what the container runtime can do for a pod, by the handler of its RuntimeClass: user
// namespaces, recursive read-only mounts. It has no state.
package handlers
