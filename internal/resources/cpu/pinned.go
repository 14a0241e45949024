package cpu

import (
	"fmt"

	"k8s.io/utils/cpuset"

	"keelson/internal/runtime/cri/inventory"
)

// PinnedOf returns the CPUs that running containers are pinned to.
func PinnedOf(running []inventory.Container) ([]Pinned, error) {
	out := make([]Pinned, 0, len(running))
	for _, c := range running {
		set, err := cpuset.Parse(c.Resources.GetCpusetCpus())
		if err != nil {
			return nil, fmt.Errorf("read CPUs of container %s of pod %s: %w", c.Name, c.UID, err)
		}
		out = append(out, Pinned{UID: c.UID, Container: c.Name, CPUs: set, Shares: c.Resources.GetCpuShares()})
	}
	return out, nil
}
