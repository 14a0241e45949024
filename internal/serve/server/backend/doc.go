// Package backend answers the server's questions about pods from the parts that own the facts: specifications from
// desired, containers from observed, statuses from status, explanations from the pods' workers. Logs are read from
// files; exec, attach and port-forward are prepared by the container runtime.
//
// Its types hold no state of their own.
package backend
