package container

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxHostname is what the kernel takes for a host name, and maxLabel what DNS
// takes for one label of it.
const (
	maxHostname = 64
	maxLabel    = 63
)

// names are what a pod is called by itself.
type names struct {
	host   string
	domain string // empty for a pod without a subdomain
}

// fqdn is the full name, or nothing for a pod that has no domain.
func (n names) fqdn() string {
	if n.domain == "" {
		return ""
	}
	return n.host + "." + n.domain
}

// podNames decides what a pod is called.
func podNames(p *v1.Pod, clusterDomain string) names {
	if o := p.Spec.HostnameOverride; o != nil && *o != "" {
		return names{host: cutHostname(*o)}
	}
	n := names{host: cutHostname(p.Name)}
	if p.Spec.Hostname != "" {
		n.host = cutHostname(p.Spec.Hostname)
	}
	if p.Spec.Subdomain != "" {
		n.domain = p.Spec.Subdomain + "." + p.Namespace + ".svc." + clusterDomain
	}
	return n
}

// cutHostname makes a pod's name fit; what is left may not end in a separator.
func cutHostname(s string) string {
	if len(s) <= maxLabel {
		return s
	}
	return strings.TrimRight(s[:maxLabel], "-.")
}

// kernelHostname is the host name set in the pod's sandbox: the short one, or
// the full one for a pod that asks for it. Pods on the host's network keep the
// node's.
func kernelHostname(p *v1.Pod, n names) (string, error) {
	switch {
	case p.Spec.HostNetwork:
		return "", nil
	case p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN || n.domain == "":
		return n.host, nil
	}
	full := n.fqdn()
	if len(full) > maxHostname {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)", full, maxHostname, len(full))
	}
	return full, nil
}
