package stats

import (
	"context"
	"errors"
	"io/fs"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/resources/cgroup"
	"keelson/internal/resources/machine"
)

// Memory is how much memory there is for some processes, and how much of it they
// cannot do without.
type Memory struct {
	At                   time.Time
	Capacity, WorkingSet uint64
}

// Available is what is left.
func (m Memory) Available() uint64 { return m.Capacity - min(m.WorkingSet, m.Capacity) }

// NodeMemory tells of the whole node, as the summary does.
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

// PodsMemory tells of all pods together; ok is false where they have no limit.
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

// Fresh makes a summary of what pods use of CPU time and memory now, and shares no
// reading with others.
func (c *Collector) Fresh(ctx context.Context) *statsapi.Summary {
	return c.summarise(c.readAnew(ctx, cgroup.Core), nil)
}
