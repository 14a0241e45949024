// Package criproxy is a CRI server between a kubelet and a real container runtime. It forwards
// every call and every stream, and calls the hooks that fakecri has too: one that changes the
// command of a container, one that answers execs, one that gets every unary call that has ended.
//
// What it owns: the configurations of the sandboxes and containers that were created through it,
// by their ids, until they are removed. They are behind Proxy.mu, a leaf.
package criproxy
