package server

import (
	"crypto/tls"
	"fmt"
)

// ParseTLS parses tlsMinVersion, tlsCipherSuites and tlsCurvePreferences of the configuration.
func ParseTLS(minVersion string, suites []string, curves []int32) (TLS, error) {
	versions := map[string]uint16{
		"":             0,
		"VersionTLS10": tls.VersionTLS10,
		"VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12,
		"VersionTLS13": tls.VersionTLS13,
	}
	version, ok := versions[minVersion]
	if !ok {
		return TLS{}, fmt.Errorf("read tlsMinVersion: unknown version %q", minVersion)
	}
	out := TLS{MinVersion: version}
	byName := map[string]uint16{}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		byName[s.Name] = s.ID
	}
	for _, name := range suites {
		id, ok := byName[name]
		if !ok {
			return TLS{}, fmt.Errorf("read tlsCipherSuites: unknown suite %q", name)
		}
		out.CipherSuites = append(out.CipherSuites, id)
	}
	for _, c := range curves {
		out.CurvePreferences = append(out.CurvePreferences, tls.CurveID(c))
	}
	return out, nil
}
