// Package volumenode is a node that only has pods and claims: the agent's own volume code,
// with the plugins of a test, mounts the pods' volumes and unmounts them. The node's state
// is on the disk and in the mount table, so a new node can be made from the state that
// another one left, as after a crash.
package volumenode
