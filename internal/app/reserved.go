package app

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/node/node"
	"keelson/internal/resources/cgroup"
)

// limitReserved holds the programs for which something is kept from pods to what is
// kept, where that is to be enforced. Their cgroups are somebody else's to make: a
// node where one is missing was not set up as it was meant to be, and does not start.
func (a *agent) limitReserved() error {
	k := &a.cfg.Kubelet
	for _, r := range []struct {
		what, title, path string
		amounts           map[string]string
	}{
		{"system-reserved", "System Reserved", k.SystemReservedCgroup, k.SystemReserved},
		{"kube-reserved", "Kube Reserved", k.KubeReservedCgroup, k.KubeReserved},
	} {
		whole, compressible := slices.Contains(k.EnforceNodeAllocatable, r.what), slices.Contains(k.EnforceNodeAllocatable, r.what+"-compressible")
		if !whole && !compressible {
			continue
		}
		amounts, err := reservations(r.amounts)
		if err == nil {
			err = a.cgroups.LimitReserved(r.path, cgroup.ReservedValues(amounts, !whole))
		}
		if err != nil {
			title := r.title
			if !whole {
				title += " Compressible"
			}
			a.events.Node(v1.EventTypeWarning, node.EventAllocatableFailing,
				fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", title, r.path, err))
			return fmt.Errorf("enforce %s: %w", r.what, err)
		}
		a.events.Node(v1.EventTypeNormal, node.EventAllocatableSet, fmt.Sprintf("Updated limits on %s cgroup %s", strings.ToLower(r.title), r.path))
	}
	return nil
}
