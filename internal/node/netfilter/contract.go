package netfilter

// Names that programs in containers look for, and that upstream's agent uses.
const (
	chainHint     = "KUBE-IPTABLES-HINT" // in mangle; it stays empty
	chainFirewall = "KUBE-FIREWALL"      // in filter
)
