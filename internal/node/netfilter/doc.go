// Package netfilter keeps the chains of the packet filter that a node's agent is
// expected to have: one by which programs in containers see which of the two
// iptables this node uses, and one that drops packets which claim to come from
// this machine's loopback and do not.
//
// The kernel owns the chains; nothing is remembered here. Somebody who flushes the
// tables takes them away, so they are looked at again once in a while.
package netfilter
