package admission

import (
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// hostPort is a port of the node.
type hostPort struct {
	protocol v1.Protocol
	ip       string // empty: all addresses
	port     int32
}

// clashes reports whether two host ports conflict. The empty address conflicts with every
// address.
func (a hostPort) clashes(b hostPort) bool {
	return a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || a.ip == "" || b.ip == "")
}

func nodePorts(in Input) *pod.Rejection {
	wanted := hostPorts(in.Pod)
	if len(wanted) == 0 {
		return nil
	}
	for _, other := range in.Others {
		for _, taken := range hostPorts(other) {
			for _, w := range wanted {
				if w.clashes(taken) {
					return predicate(ReasonNodePorts, saysNodePorts)
				}
			}
		}
	}
	return nil
}

// hostPorts returns the host ports of regular containers and sidecars.
func hostPorts(p *v1.Pod) []hostPort {
	var out []hostPort
	for kind, c := range pod.Containers(p) {
		if kind != pod.Regular && kind != pod.Sidecar {
			continue
		}
		for _, port := range c.Ports {
			if port.HostPort <= 0 {
				continue
			}
			h := hostPort{port.Protocol, port.HostIP, port.HostPort}
			if h.protocol == "" {
				h.protocol = v1.ProtocolTCP
			}
			if h.ip == "0.0.0.0" || h.ip == "::" {
				h.ip = ""
			}
			out = append(out, h)
		}
	}
	return out
}
