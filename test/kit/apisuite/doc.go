// Package apisuite says what an API server does, as far as a kubelet relies on it, in the form
// of one test suite that the fake API server and the real one pass: error statuses, resource
// versions and conflicts, lists and watches, strategic merge patches, status subresources,
// deletion with a grace period and with preconditions, events, leases, tokens and certificate
// signing requests.
//
// Each case has a namespace of its own. Pods are bound to nodes that do not exist, and name a
// scheduler that does not exist, so that no controller touches them.
package apisuite
