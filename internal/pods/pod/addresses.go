package pod

import (
	netutil "k8s.io/utils/net"
)

// Addresses are those of a pod as the API knows them: one of each family, in their usual form, that of the address
// in --node-ip first, or IPv4 without one. The API server refuses the status of a pod with more, and runtimes report as many as the
// network plugin has given the sandbox.
func Addresses(reported []string, nodeIP string) []string {
	var first, second string
	for _, s := range reported {
		ip := netutil.ParseIPSloppy(s)
		switch {
		case ip == nil:
		case netutil.IsIPv6(ip) == netutil.IsIPv6String(nodeIP):
			if first == "" {
				first = ip.String()
			}
		case second == "":
			second = ip.String()
		}
	}
	var out []string
	for _, ip := range []string{first, second} {
		if ip != "" {
			out = append(out, ip)
		}
	}
	return out
}
