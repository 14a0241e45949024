// Package watch keeps copies of objects at the API server that the agent looks up by name: all services, all runtime
// classes, and, from the first lookup on, the kinds that few nodes need ([Lazy]).
//
// The copies are client-go's stores, which are safe for concurrent use. The method Run of each type fills its store.
package watch
