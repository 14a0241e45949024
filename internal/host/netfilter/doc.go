// Package netfilter ensures the iptables chains that are expected of a node agent: one from which programs in
// containers detect the variant of iptables that the node uses, and one that drops packets to loopback addresses from
// outside of the machine.
//
// The kernel owns the chains, and the package has no state. They are checked periodically, because the tables may be
// flushed.
package netfilter
