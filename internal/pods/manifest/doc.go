// Package manifest compiles the manifests of static pods, from files and from a URL, into pods.
//
// A [Compiler] decodes the text, gives the pod its name and UID on this node, sets the defaults and validates it, as
// the API server does with a pod: no API server has seen a static pod before it runs. Validation errors have upstream's
// texts, and a manifest without a UID gets the same UID as upstream (docs/decisions/0004).
//
// Everything here is a pure function of the text, where it was read from, and the Compiler's fields.
package manifest
