package container

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxHostname is the kernel's limit of a host name, maxLabel that of one DNS label.
const (
	maxHostname = 64
	maxLabel    = 63
)

// names are the host name and domain of a pod.
type names struct {
	host   string
	domain string // empty if the pod has no subdomain
}

// fqdn returns the fully qualified domain name, "" if the pod has no domain.
func (n names) fqdn() string {
	if n.domain == "" {
		return ""
	}
	return n.host + "." + n.domain
}

// podNames decides the host name and domain of a pod.
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

// cutHostname truncates a pod's name to a DNS label that does not end in a separator.
func cutHostname(s string) string {
	if len(s) <= maxLabel {
		return s
	}
	return strings.TrimRight(s[:maxLabel], "-.")
}

// kernelHostname returns the host name to set in the pod's sandbox: the short name, or the FQDN if
// setHostnameAsFQDN is set. Pods on the host network keep the node's.
func kernelHostname(p *v1.Pod, n names) (string, error) {
	switch {
	case p.Spec.HostNetwork:
		return "", nil
	case p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN || n.domain == "":
		return n.host, nil
	}
	full := n.fqdn()
	if len(full) > maxHostname {
		return "", fmt.Errorf(
			"failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, "+
				"%d characters requested)", full, maxHostname, len(full))
	}
	return full, nil
}
