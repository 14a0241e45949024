// Package judge gathers what package allocation needs to admit pods: the node's state for package admission ([Judge]),
// and which pods use the node or may be admitted now ([Occupancy]). It has no state; each call reads the current state
// from its owners.
package judge
