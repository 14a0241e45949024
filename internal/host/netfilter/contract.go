package netfilter

// Names of chains, which programs in containers look for. They are the same as upstream's.
const (
	chainHint     = "KUBE-IPTABLES-HINT" // in table mangle; empty
	chainFirewall = "KUBE-FIREWALL"      // in filter
)
