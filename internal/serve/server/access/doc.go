// Package access authenticates and authorizes requests to the node, with the help of the API server, and caches the
// answers.
//
// It owns the caches only. Certificates are verified against the current CAs, tokens and access by the API server. The
// caches are bounded in size and time. Positive and negative answers are cached separately, so that a flood of invalid
// tokens does not evict valid ones.
package access
