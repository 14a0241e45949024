// Package e2e holds tests of the whole agent: the kubelet binary on a real
// containerd, with a real API server, controller-manager and scheduler.
//
// The tests carry the build tag e2e; `make e2e` runs them. Most of them share
// one node, which starts with the first test that uses it (shared) and is
// removed after the last. Each has a namespace of its own. Tests that break
// something that all tests share, the agent, the runtime or the API server, run
// one after another, before those that run in parallel.
//
// A wait watches or polls until its condition holds, within a bound. The bound is
// long, because it is not a requirement on speed.
package e2e
