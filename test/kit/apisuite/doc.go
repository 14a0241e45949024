// Package apisuite is a test suite for the behaviour of an API server that a kubelet relies on. The fake
// API server and the real one pass it. It covers error statuses, resource versions and conflicts, lists and
// watches, strategic merge patches, status subresources, deletion with a grace period and with preconditions,
// events, leases, tokens and certificate signing requests.
//
// Each case has a namespace of its own. Pods are bound to nodes that do not exist, and name a
// scheduler that does not exist, so that no controller touches them.
package apisuite
