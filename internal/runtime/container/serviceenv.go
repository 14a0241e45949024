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

// apiService is the service of the API server, which appears in the environment of every pod.
const apiService = "kubernetes"

// visibleServices returns the services for a pod's environment: that of the API server, and with
// enableServiceLinks those of the pod's namespace. A service named kubernetes in the namespace
// replaces that of the API server.
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

// serviceEnv returns the environment variables of services: first the Kubernetes ones, then those
// compatible with Docker links.
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
