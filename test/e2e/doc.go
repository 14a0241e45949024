// Package e2e holds tests of the whole agent: the kubelet binary on a real
// containerd, with a real API server, controller-manager and scheduler.
//
// The tests carry the build tag e2e; `make e2e` runs them. Most of them share
// one node, which starts with the first test that asks for it (shared) and is
// removed after the last. Each has a namespace of its own. Tests that break
// something everybody stands on, the agent, the runtime or the API server, run
// one after another, before those that run in parallel.
//
// What is waited for is watched or read until it is so, within a bound; the
// bound is generous, because it is no statement about speed.
package e2e
