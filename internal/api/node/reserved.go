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

// SumReservations is the sum of what the configuration reserves, such as systemReserved and kubeReserved.
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
	Name    string // as enforceNodeAllocatable has it: system-reserved
	Title   string // as events have it: System Reserved
	Cgroup  string
	Amounts map[string]string
	// Compressible limits the CPU only: what can be taken back.
	Compressible bool
}

// limiter limits cgroups beside those of pods.
type limiter interface {
	LimitReserved(path string, v cgroup.Values) error
}

// Enforce limits the programs in a cgroup to what is reserved for them. The cgroups are made by the administrator: a
// node where one is missing does not start.
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

// ProvidedIP is the annotation for a cloud's controller with the addresses of --node-ip. The controller looks for just
// these among its own, and does not initialise a node whose annotation it cannot read: 0.0.0.0 and ::, which choose a
// family, are left out.
func ProvidedIP(ips []netip.Addr) string {
	var out []string
	for _, ip := range ips {
		if !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	return strings.Join(out, ",")
}

// DevicesOf are the devices of plugins: counts of all and of the healthy ones by resource, and resources that are gone.
func DevicesOf(all, healthy map[string]int, gone []string) Devices {
	d := Devices{Capacity: device.Quantities(all), Allocatable: device.Quantities(healthy)}
	for _, name := range gone {
		d.Gone = append(d.Gone, v1.ResourceName(name))
	}
	return d
}

// NewNameMetric is the name of the node as a metric.
func NewNameMetric(name string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kubelet_node_name",
		Help:        "The node's name. The count is always 1.",
		ConstLabels: prometheus.Labels{"node": name},
	})
	g.Set(1)
	return g
}
