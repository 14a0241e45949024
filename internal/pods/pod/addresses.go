package pod

import (
	netutil "k8s.io/utils/net"
)

// Addresses returns the pod IPs for the API: one of each family, in canonical form, first
// the family of --node-ip, by default IPv4. The API server refuses a status with more,
// while runtimes report all that the network plugin assigned to the sandbox.
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
