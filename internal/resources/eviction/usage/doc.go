// Package usage finds what stats and eviction measure: the pods in the runtime, and their volumes. It has no state.
package usage
