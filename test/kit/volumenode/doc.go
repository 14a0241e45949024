// Package volumenode is a node with claims and nothing else: pods come to have
// their volumes and lose them again, by the agent's own volume code and the plugins
// that a test hands in. What it has done is on the disk and in the mount table, so
// a node can be made anew on what another one left, as after a crash.
package volumenode
