// Package usage collects the input of stats and eviction: the pods in the runtime, and the usage of their volumes. It
// has no state.
package usage
