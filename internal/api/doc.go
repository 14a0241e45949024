// Package api contains the packages that use the API server. Package client calls it, identity gets and rotates the
// node's certificates, node registers the Node object and keeps its status and lease up to date, and objectcache caches
// the ConfigMaps, Secrets and tokens that pods refer to. Package watch caches other objects that are looked up by name.
//
// Package pods/desired reads pods from the API server, and package pods/status writes their statuses.
//
// It has no code of its own.
package api
