// Package api is the room of the API server: client calls it, identity gets and rotates the node's certificates, node
// registers the Node object and keeps its status and lease up to date, and objectcache caches the ConfigMaps, Secrets
// and tokens that pods refer to. watch caches other objects that are looked up by name.
//
// Pods come from it through pods/desired, and their statuses go to it through pods/status.
//
// It holds no code of its own.
package api
