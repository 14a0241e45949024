package node

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// addresses returns the addresses of the node's status. With an external cloud provider they are those that the cloud
// controller has set. Until it has set any, the only one is the value of --node-ip. While no address can be found, for
// example before the network is up, the status keeps its addresses.
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

// reachableAddresses returns the addresses at which a node with these addresses is reached: the first one, internal
// before external, and the first one of the other family.
func reachableAddresses(shown []v1.NodeAddress) []netip.Addr {
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

// HostIPs returns the node's addresses, the primary one first: those that the agent has found, or those of the node
// object if a cloud controller sets them. There may be none.
func (n *Node) HostIPs() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hostIPsLocked()
}

func (n *Node) hostIPsLocked() []netip.Addr {
	if !n.cfg.Identity.External {
		return slices.Clone(n.found)
	}
	return reachableAddresses(n.shownLocked())
}

func (n *Node) shownLocked() []v1.NodeAddress {
	if n.known != nil {
		return n.known.Status.Addresses
	}
	return n.status.Addresses
}

// Addresses returns the addresses of the node's status.
func (n *Node) Addresses() []v1.NodeAddress {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.shownLocked())
}

// AddressMismatch returns a message if the cloud controller has selected a node address of another family than the
// agent, which affects pods on the node's network. Otherwise it is empty.
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
	if provided { // the cloud controller reads it from an annotation of the node
		verb, advice = "was given", "have the cloud provider follow `--node-ip`, or change that."
	}
	return fmt.Sprintf("Kubelet %s an %s node IP (%s), but the cloud provider selected an %s node IP (%s); %s",
		verb, family(found[0]), found[0], family(chosen[0]), chosen[0], advice)
}

// notifyAddresses calls OnAddresses if the addresses have changed.
func (n *Node) notifyAddresses() {
	n.mu.Lock()
	now := n.hostIPsLocked()
	same := slices.Equal(now, n.notified)
	n.notified = now
	n.mu.Unlock()
	if !same && n.cfg.OnAddresses != nil {
		n.cfg.OnAddresses()
	}
}

// HostIPTexts returns HostIPs as text.
func (n *Node) HostIPTexts() []string {
	var out []string
	for _, ip := range n.HostIPs() {
		out = append(out, ip.String())
	}
	return out
}
