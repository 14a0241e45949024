package container

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// portMappings returns the port mappings of the pod's regular containers. Ports of init containers
// and sidecars are not mapped. Of ports of one container with the same name, or of unnamed ones
// that are equal, only the first is used.
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for i := range p.Spec.Containers {
		seen := map[string]bool{}
		for _, port := range p.Spec.Containers[i].Ports {
			key := port.Name
			if key == "" {
				key = fmt.Sprintf("%s-%s-%s:%d:%d", family(port.HostIP), port.Protocol, port.HostIP, port.ContainerPort,
					port.HostPort)
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      protocol(port.Protocol),
				ContainerPort: port.ContainerPort,
				HostPort:      port.HostPort,
				HostIp:        port.HostIP,
			})
		}
	}
	return out
}

func family(hostIP string) string {
	switch {
	case hostIP == "":
		return "any"
	case isIPv6(hostIP):
		return "v6"
	default:
		return "v4"
	}
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}
