package node

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// addresses are the addresses in the node's status. With an external cloud provider they
// are those that the cloud controller has set. Until it has set any, the only one is the
// value of --node-ip. While no address can be found, for example before the network is
// up, the status keeps its addresses.
func addresses(in Input) []v1.NodeAddress {
	var out []v1.NodeAddress
	if (in.External || len(in.Addresses) == 0) && len(in.Prev.Addresses) > 0 {
		return in.Prev.Addresses
	}
	if !in.External || in.Provided {
		for _, ip := range in.Addresses {
			out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
		}
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: in.Hostname})
}

// chosen are the addresses that a node which shows these is reached at: the first,
// inner ones before outer ones, and the first of the other family.
func chosen(shown []v1.NodeAddress) []netip.Addr {
	var out []netip.Addr
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range shown {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil {
				continue
			}
			if len(out) == 0 || len(out) == 1 && family(ip) != family(out[0]) {
				out = append(out, ip)
			}
		}
	}
	return out
}

func family(ip netip.Addr) string {
	if ip.Unmap().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// HostIPs are the node's addresses, the primary one first: those that the agent found
// or, where a cloud's controller sets them, those that the node object has. There may
// be none.
func (n *Node) HostIPs() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hostIPsLocked()
}

func (n *Node) hostIPsLocked() []netip.Addr {
	if !n.cfg.Identity.External {
		return slices.Clone(n.found)
	}
	return chosen(n.shownLocked())
}

func (n *Node) shownLocked() []v1.NodeAddress {
	if n.known != nil {
		return n.known.Status.Addresses
	}
	return n.status.Addresses
}

// Addresses are those that the node shows.
func (n *Node) Addresses() []v1.NodeAddress {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.shownLocked())
}

// AddressMismatch says that the cloud's controller has the node reached at another
// family of addresses than the agent would, which pods on the node's network notice.
// It is empty while that is not so.
func (n *Node) AddressMismatch() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return mismatch(n.found, n.hostIPsLocked(), n.cfg.Identity.ProvidedIP != "")
}

func mismatch(found, chosen []netip.Addr, provided bool) string {
	if len(found) == 0 || len(chosen) == 0 || family(found[0]) == family(chosen[0]) {
		return ""
	}
	verb, advice := "detected", "pass an explicit `--node-ip` to kubelet to fix this."
	if provided { // which the cloud's controller reads in the node's annotation
		verb, advice = "was given", "have the cloud provider follow `--node-ip`, or change that."
	}
	return fmt.Sprintf("Kubelet %s an %s node IP (%s), but the cloud provider selected an %s node IP (%s); %s",
		verb, family(found[0]), found[0], family(chosen[0]), chosen[0], advice)
}

// tellAddresses has those know who follow the node's addresses, if these are others.
func (n *Node) tellAddresses() {
	n.mu.Lock()
	now := n.hostIPsLocked()
	same := slices.Equal(now, n.told)
	n.told = now
	n.mu.Unlock()
	if !same && n.cfg.OnAddresses != nil {
		n.cfg.OnAddresses()
	}
}
