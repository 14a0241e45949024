package node

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/host/cgroup"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/device"
)

// SumReservations returns the sum of reservations in the configuration, such as systemReserved and kubeReserved.
func SumReservations(lists ...map[string]string) (v1.ResourceList, error) {
	sum := v1.ResourceList{}
	for _, list := range lists {
		for name, text := range list {
			q, err := apiresource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reserve %s %q: %w", name, text, err)
			}
			have := sum[v1.ResourceName(name)]
			have.Add(q)
			sum[v1.ResourceName(name)] = have
		}
	}
	return sum, nil
}

// Reservation is what is reserved for the programs in a cgroup.
type Reservation struct {
	Name    string // in enforceNodeAllocatable: system-reserved
	Title   string // in events: System Reserved
	Cgroup  string
	Amounts map[string]string
	// Compressible limits compressible resources only, which is the CPU.
	Compressible bool
}

// limiter limits cgroups beside those of pods.
type limiter interface {
	LimitReserved(path string, v cgroup.Values) error
}

// Enforce limits the programs in a cgroup to what is reserved for them. The administrator creates the cgroups. If one
// is missing, the agent does not start.
func (r Reservation) Enforce(groups limiter, events pod.Events) error {
	amounts, err := SumReservations(r.Amounts)
	if err == nil {
		err = groups.LimitReserved(r.Cgroup, cgroup.ReservedValues(amounts, r.Compressible))
	}
	if err != nil {
		title := r.Title
		if r.Compressible {
			title += " Compressible"
		}
		events.Node(v1.EventTypeWarning, EventAllocatableFailing,
			fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", title, r.Cgroup, err))
		return fmt.Errorf("enforce %s: %w", r.Name, err)
	}
	events.Node(v1.EventTypeNormal, EventAllocatableSet,
		fmt.Sprintf("Updated limits on %s cgroup %s", strings.ToLower(r.Title), r.Cgroup))
	return nil
}

// ProvidedIP returns the value of the annotation with the addresses of --node-ip, for the cloud controller. The
// controller only uses these of the addresses that it finds, and does not initialize a node whose annotation it cannot
// parse. So 0.0.0.0 and ::, which only select an IP family, are omitted.
func ProvidedIP(ips []netip.Addr) string {
	var out []string
	for _, ip := range ips {
		if !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	return strings.Join(out, ",")
}

// DevicesOf returns the resources of device plugins: all and healthy are counts of devices by resource, and gone are
// the resources that were removed.
func DevicesOf(all, healthy map[string]int, gone []string) Devices {
	d := Devices{Capacity: device.Quantities(all), Allocatable: device.Quantities(healthy)}
	for _, name := range gone {
		d.Gone = append(d.Gone, v1.ResourceName(name))
	}
	return d
}

// NewNameMetric returns the metric with the name of the node.
func NewNameMetric(name string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kubelet_node_name",
		Help:        "The node's name. The count is always 1.",
		ConstLabels: prometheus.Labels{"node": name},
	})
	g.Set(1)
	return g
}
