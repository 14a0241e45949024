package stats

import (
	"context"
	"errors"
	"io/fs"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
)

// Memory is the memory of some processes: their capacity and their working set.
type Memory struct {
	At                   time.Time
	Capacity, WorkingSet uint64
}

// Available returns the memory that is not in the working set.
func (m Memory) Available() uint64 { return m.Capacity - min(m.WorkingSet, m.Capacity) }

// NodeMemory returns the memory of the node, as in the summary.
func (c *Collector) NodeMemory() (Memory, error) {
	m, err := machine.ReadMemory(c.cfg.Host)
	if err != nil {
		return Memory{}, err
	}
	out := Memory{At: time.Now(), Capacity: m.Total, WorkingSet: m.Total - m.Available()}
	if c.cfg.Groups.V1["memory"] != "" {
		u, err := c.cfg.Groups.Usage("/", cgroup.Core)
		if err != nil {
			return Memory{}, err
		}
		out.WorkingSet = u.Memory.WorkingSet
	}
	return out, nil
}

// PodsMemory returns the memory of all pods. ok is false if they have no limit.
func (c *Collector) PodsMemory() (m Memory, ok bool, err error) {
	if c.cfg.Tree == nil {
		return Memory{}, false, nil
	}
	u, err := c.cfg.Groups.Usage(c.cfg.Tree.PodsPath(), cgroup.Core)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Memory{}, false, nil
	case err != nil:
		return Memory{}, false, err
	}
	return Memory{At: u.At, Capacity: u.Memory.Limit, WorkingSet: u.Memory.WorkingSet}, u.Memory.Limit > 0, nil
}

// Fresh returns a summary of the current CPU time and memory. It does not reuse a reading.
func (c *Collector) Fresh(ctx context.Context) *statsapi.Summary {
	return c.summarise(c.readAnew(ctx, cgroup.Core), nil)
}
