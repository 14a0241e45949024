// Package identity gets the node its certificates from the cluster and keeps them
// valid: the one it comes to the API server with, and the one its own server shows.
//
// A [Store] owns the files of one certificate: a file for each one issued, and a
// link to the one in force. A [Rotator] asks for a new certificate when there is
// none, when the one in force is old, or when it does not say what it should, and
// puts it in the store. [Bootstrap] does the same once, for a node that does not
// rotate. [Resolve] decides what a node comes with: the credentials of its
// kubeconfig, or those for the bootstrap while it has no others.
//
// It reads the kubeconfig files and the certificate directory; nobody else writes
// to that directory. What it is built from of client-go's is the kubeconfig, the
// PEM and the watch: the certificate manager that comes with client-go needs the
// generated clients of every API group, see docs/decisions/0055.
//
// A Rotator's mutex guards its certificate and what is known of the server's
// health; nothing is called while it is held.
package identity
