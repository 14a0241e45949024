package container

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// apiService is the API server's own service, which every pod is told about.
const apiService = "kubernetes"

// visibleServices are those whose addresses a pod's environment carries: the
// API server's, and those of its namespace if it wants links to them. A service
// of the namespace hides the API server's if it bears that name.
func visibleServices(namespace string, links bool, list func(namespace string) []*v1.Service) []*v1.Service {
	byName := map[string]*v1.Service{}
	for _, s := range list(v1.NamespaceDefault) {
		if s.Name == apiService {
			byName[s.Name] = s
		}
	}
	if links {
		for _, s := range list(namespace) {
			if hasAddress(s) {
				byName[s.Name] = s
			}
		}
	}
	var out []*v1.Service
	for _, s := range byName {
		if hasAddress(s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *v1.Service) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func hasAddress(s *v1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone && len(s.Spec.Ports) > 0
}

// serviceEnv is the environment that tells of services: first in the words of
// Kubernetes, then in those of Docker's links.
func serviceEnv(services []*v1.Service) []pod.EnvVar {
	var out []pod.EnvVar
	add := func(name, value string) { out = append(out, pod.EnvVar{Name: name, Value: value}) }
	for _, s := range services {
		name, ip := envName(s.Name), s.Spec.ClusterIP
		add(name+"_SERVICE_HOST", ip)
		add(name+"_SERVICE_PORT", strconv.Itoa(int(s.Spec.Ports[0].Port)))
		for _, p := range s.Spec.Ports {
			if p.Name != "" {
				add(name+"_SERVICE_PORT_"+envName(p.Name), strconv.Itoa(int(p.Port)))
			}
		}
		for i, p := range s.Spec.Ports {
			proto := string(cmp.Or(p.Protocol, v1.ProtocolTCP))
			port := strconv.Itoa(int(p.Port))
			url := strings.ToLower(proto) + "://" + net.JoinHostPort(ip, port)
			if i == 0 {
				add(name+"_PORT", url)
			}
			prefix := name + "_PORT_" + port + "_" + strings.ToUpper(proto)
			add(prefix, url)
			add(prefix+"_PROTO", strings.ToLower(proto))
			add(prefix+"_PORT", port)
			add(prefix+"_ADDR", ip)
		}
	}
	return out
}

func envName(s string) string {
	return strings.ToUpper(strings.ReplaceAll(s, "-", "_"))
}
