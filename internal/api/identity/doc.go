// Package identity gets the node's certificates from the cluster and rotates them: the client certificate for the API
// server, and the certificate of the node's server.
//
// A [Store] owns the files of one certificate: a file for each issued one, and a link to the current one. A [Rotator]
// requests a certificate when there is none, when the current one is due for rotation, or when it does not match the
// template, and puts it in the store. [Bootstrap] does the same once, for a node without rotation. [Resolve] selects
// the credentials of a node: those of its kubeconfig, or the bootstrap credentials while it has no valid ones.
//
// It reads kubeconfig files and owns the certificate directory. It uses client-go for kubeconfig, PEM and watches, but
// not its certificate manager, which needs the generated clients of every API group, see docs/decisions/0055.
//
// A Rotator's mutex guards its certificate and the state of the server's health. It is never held during a call.
package identity
