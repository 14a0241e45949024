// Package watch keeps copies of objects at the API server that the agent looks up by name: all services, all runtime
// classes, and, from the first question on, the kinds that few nodes need ([Lazy]).
//
// The copies are client-go's stores, which are safe for concurrent use. Run of each feeds its store.
package watch
