// Package backend implements the server's interfaces with the parts that own the data: specifications from desired,
// containers from observed, statuses from status, explanations from the pods' workers. Logs are read from files; exec,
// attach and port-forward are prepared by the container runtime.
//
// Its types have no state of their own.
package backend
