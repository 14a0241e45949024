package identity

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"
)

// due returns when a certificate is rotated: after 70 to 90 percent of its life, depending on chance (0 to 1), so that
// nodes that joined together do not rotate together.
func due(leaf *x509.Certificate, chance float64) time.Time {
	life := float64(leaf.NotAfter.Sub(leaf.NotBefore))
	return leaf.NotBefore.Add(time.Duration(life * (0.7 + 0.2*chance)))
}

// mismatch returns what a certificate lacks compared to the template, or an empty string. Additional names and
// addresses in the certificate are accepted.
func mismatch(leaf *x509.Certificate, want *x509.CertificateRequest) string {
	if leaf.Subject.CommonName != want.Subject.CommonName {
		return fmt.Sprintf("is for %s, not for %s", leaf.Subject.CommonName, want.Subject.CommonName)
	}
	for what, miss := range map[string][]string{
		"names":         missing(want.DNSNames, leaf.DNSNames),
		"addresses":     missing(texts(want.IPAddresses), texts(leaf.IPAddresses)),
		"organisations": missing(want.Subject.Organization, leaf.Subject.Organization),
	} {
		if len(miss) > 0 {
			return fmt.Sprintf("lacks %s %v", what, miss)
		}
	}
	return ""
}

func missing(want, have []string) []string {
	var out []string
	for _, w := range want {
		if !slices.Contains(have, w) {
			out = append(out, w)
		}
	}
	return out
}

func texts(ips []net.IP) []string {
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

// sameTemplate reports whether two templates are equal.
func sameTemplate(a, b *x509.CertificateRequest) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Subject.String() == b.Subject.String() && slices.Equal(a.DNSNames, b.DNSNames) &&
		slices.Equal(texts(a.IPAddresses), texts(b.IPAddresses))
}

// Address is an address of the node's status.
type Address struct {
	Kind, Address string
}

// ServingTemplate returns the template of the serving certificate, with the node's names and addresses. It is nil while
// there is no address, unless names alone are enough.
func ServingTemplate(node string, addresses []Address, namesAlone bool) *x509.CertificateRequest {
	names, ips := map[string]bool{}, map[string]net.IP{}
	for _, a := range addresses {
		ip := net.ParseIP(a.Address)
		switch a.Kind {
		case "Hostname":
			if ip == nil {
				names[a.Address] = true
				continue
			}
			ips[ip.String()] = ip
		case "InternalDNS", "ExternalDNS":
			names[a.Address] = true
		case "InternalIP", "ExternalIP":
			if ip != nil {
				ips[ip.String()] = ip
			}
		}
	}
	if len(ips) == 0 && (!namesAlone || len(names) == 0) {
		return nil
	}
	t := &x509.CertificateRequest{Subject: subject(node), DNSNames: slices.Sorted(maps.Keys(names))}
	for _, text := range slices.Sorted(maps.Keys(ips)) {
		t.IPAddresses = append(t.IPAddresses, ips[text])
	}
	return t
}
