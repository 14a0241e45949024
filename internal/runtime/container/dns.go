package container

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// Limits of common resolver implementations.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchChars  = 2048
	maxSearchDomain = 253
	// clusterSearches is the number of search domains that ClusterFirst puts in front.
	clusterSearches = 3
)

// warning is an event about a problem that does not keep the pod from starting.
type warning struct {
	reason, message string
	node            bool // recorded on the node as well
}

// dnsPolicy returns the effective DNS policy of a pod on this node: None, Default or ClusterFirst.
// An unknown policy counts as ClusterFirst.
func dnsPolicy(p *v1.Pod, cfg DNSConfig) (v1.DNSPolicy, []warning) {
	switch policy := p.Spec.DNSPolicy; policy {
	case v1.DNSNone, v1.DNSDefault:
		return policy, nil
	case v1.DNSClusterFirst, "":
		if p.Spec.HostNetwork {
			return v1.DNSDefault, nil
		}
	}
	if len(cfg.ClusterDNS) == 0 {
		text := fmt.Sprintf(
			"kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			v1.DNSClusterFirst, v1.DNSDefault)
		return v1.DNSDefault, []warning{{reason: pod.EventMissingClusterDNS, message: text, node: true}}
	}
	return v1.DNSClusterFirst, nil
}

// podDNS decides the content of a pod's resolv.conf. host reads the host's file and is only called
// when needed.
func podDNS(p *v1.Pod, cfg DNSConfig, host func() (resolvConf, error)) (resolvConf, []warning, error) {
	var c resolvConf
	var err error
	policy, warnings := dnsPolicy(p, cfg)
	switch {
	case policy == v1.DNSNone:
	case policy == v1.DNSClusterFirst:
		if c, err = host(); err == nil {
			c = clusterDNS(p.Namespace, cfg, c.Searches)
		}
	case cfg.ResolvConf == "":
		c = localDNS(cfg.NodeIPs)
	default:
		c, err = host()
	}
	if err != nil {
		return resolvConf{}, warnings, err
	}
	c, cut := fitDNSLimits(withOwnDNS(c, p.Spec.DNSConfig))
	return c, append(warnings, cut...), nil
}

// clusterDNS returns a configuration with the cluster's servers, in which cluster search domains
// precede the host's. The host's options are not used.
func clusterDNS(namespace string, cfg DNSConfig, hostSearches []string) resolvConf {
	c := resolvConf{Servers: cfg.ClusterDNS, Searches: hostSearches}
	if d := cfg.ClusterDomain; d != "" {
		c.Searches = unique([]string{namespace + ".svc." + d, "svc." + d, d}, hostSearches)
	}
	// Service names have up to four dots before they are fully qualified.
	c.Options = []string{"ndots:5"}
	return c
}

// withOwnDNS merges the pod's dnsConfig into c.
func withOwnDNS(c resolvConf, own *v1.PodDNSConfig) resolvConf {
	if own == nil {
		return c
	}
	var options []string
	for _, o := range own.Options {
		if o.Value != nil && *o.Value != "" {
			options = append(options, o.Name+":"+*o.Value)
		} else if o.Name != "" {
			options = append(options, o.Name)
		}
	}
	return resolvConf{
		Servers:  unique(c.Servers, own.Nameservers),
		Searches: unique(c.Searches, own.Searches),
		Options:  mergeOptions(c.Options, options),
	}
}

// localDNS returns a configuration that uses a resolver on the node, at the loopback address of
// each configured address family, and has no search domain.
func localDNS(nodeIPs []netip.Addr) resolvConf {
	c := resolvConf{Searches: []string{"."}}
	for _, ip := range nodeIPs {
		loopback := "127.0.0.1"
		if ip.Is6() {
			loopback = "::1"
		}
		c.Servers = append(c.Servers, loopback)
	}
	if len(c.Servers) == 0 {
		c.Servers = []string{"127.0.0.1"}
	}
	return c
}

// fitDNSLimits drops what exceeds the limits of resolvers and returns a warning for each limit
// exceeded.
func fitDNSLimits(c resolvConf) (resolvConf, []warning) {
	var ws []warning
	if len(c.Servers) > maxNameservers {
		c.Servers = c.Servers[:maxNameservers]
		ws = append(ws, warning{
			reason: pod.EventDNSConfigForming,
			message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
				strings.Join(c.Servers, " "),
		})
	}
	kept, chars := []string(nil), 0
	for _, s := range c.Searches[:min(len(c.Searches), maxSearches)] {
		if len(s) > maxSearchDomain {
			continue
		}
		if chars+len(s) > maxSearchChars {
			break
		}
		kept, chars = append(kept, s), chars+len(s)+1
	}
	if len(kept) < len(c.Searches) {
		ws = append(ws, warning{
			reason: pod.EventDNSConfigForming,
			message: "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(kept, " "),
		})
	}
	c.Searches = kept
	return c, ws
}

// checkSearchLimits returns a message if the host's search line leaves no room for the cluster's
// search domains, and "" otherwise.
func checkSearchLimits(path string, host resolvConf, clusterDomain string) string {
	domains := maxSearches
	if clusterDomain != "" {
		domains -= clusterSearches
	}
	if len(host.Searches) > domains {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", path,
			domains)
	}
	for _, s := range host.Searches {
		if len(s) > maxSearchDomain {
			return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!",
				path,
				maxSearchDomain)
		}
	}
	if len(strings.Join(host.Searches, " ")) > maxSearchChars {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!",
			path,
			maxSearchChars)
	}
	return ""
}

// CheckHostDNS records a warning on the node if the host's resolv.conf cannot be read or leaves no
// room for the cluster's search domains. It is called once at startup.
func (r *Runner) CheckHostDNS() {
	path := r.cfg.DNS.ResolvConf
	if path == "" {
		return
	}
	host, err := readResolvConf(path)
	text := ""
	if err != nil {
		text = err.Error()
	} else {
		text = checkSearchLimits(path, host, r.cfg.DNS.ClusterDomain)
	}
	if text != "" {
		r.cfg.Log.Warn("host resolv.conf does not suit pods", "path", path, "err", text)
		r.cfg.Events.Node(v1.EventTypeWarning, eventCheckResolvConf, text)
	}
}

// dns calls podDNS with the configuration of this node.
func (r *Runner) dns(p *v1.Pod) (resolvConf, []warning, error) {
	return podDNS(p, r.cfg.DNS, func() (resolvConf, error) {
		if r.cfg.DNS.ResolvConf == "" {
			return resolvConf{}, nil
		}
		c, err := readResolvConf(r.cfg.DNS.ResolvConf)
		if err != nil {
			text := err.Error()
			if failed := (*fs.PathError)(nil); !errors.As(err, &failed) || failed.Op != "open" {
				text = "Encountered error while parsing resolv conf file. Error: " + text
			}
			return c, pod.ShowAs(text, fmt.Errorf("read resolv.conf of the host %s: %w", r.cfg.DNS.ResolvConf, err))
		}
		return c, nil
	})
}

// unique concatenates lists and drops duplicates.
func unique(lists ...[]string) []string {
	var out []string
	for _, l := range lists {
		for _, s := range l {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// isIPv6 reports whether s is an IPv6 address.
func isIPv6(s string) bool {
	ip := net.ParseIP(s)
	return ip != nil && ip.To4() == nil
}
