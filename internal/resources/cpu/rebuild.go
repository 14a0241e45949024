package cpu

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

// Pinned is a running container with the CPUs that the runtime has pinned it to.
type Pinned struct {
	UID       types.UID
	Container string
	CPUs      cpuset.CPUSet
	Shares    int64 // CPU shares; sharesPerCPU for each requested CPU
}

// sharesPerCPU is the number of CPU shares of a request of one CPU.
const sharesPerCPU = 1024

// rebuild derives the assignments from the running containers. CPUs are taken for exclusive if a container is pinned to
// as many as it requests, none of them is reserved, and no other such container overlaps. A container that uses the
// shared pool can look the same if the pool has exactly that many CPUs. That is corrected when its pod is adopted;
// until then the CPUs are not allocated to other pods.
func (p *Manager) rebuild(running []Pinned) state {
	s := state{p.all(), map[types.UID]map[string]cpuset.CPUSet{}}
	may := p.layout.all.Difference(p.reserved)
	looksExclusive := func(k Pinned) bool {
		return !k.CPUs.IsEmpty() && k.Shares == int64(k.CPUs.Size())*sharesPerCPU && k.CPUs.IsSubsetOf(may)
	}
	for i, k := range running {
		alone := looksExclusive(k)
		for j, other := range running {
			alone = alone && (i == j || !looksExclusive(other) || other.CPUs.Intersection(k.CPUs).IsEmpty())
		}
		if !alone {
			continue
		}
		s.put(k.UID, k.Container, k.CPUs)
		s.shared = s.shared.Difference(k.CPUs)
	}
	return s
}

// recoverState rebuilds the assignments from the running containers, in place of a checkpoint that cannot be used. It
// fails if the containers are not known or do not fit the machine. With policy none there are no assignments.
func (p *Manager) recoverState() error {
	if p.cfg.Policy != PolicyStatic {
		return nil
	}
	running, err := p.cfg.Running()
	if err != nil {
		return fmt.Errorf("list running containers: %w", err)
	}
	p.state = p.rebuild(running)
	if err := p.check(); err != nil {
		return fmt.Errorf("rebuild assignments from running containers: %w", err)
	}
	return nil
}

// releaseContainerLocked releases exclusive CPUs of a container that does not request any. rebuild can have assigned
// them by mistake.
func (p *Manager) releaseContainerLocked(uid types.UID, container string) error {
	if _, has := p.assignedTo(uid, container); !has {
		return nil
	}
	next := p.clone()
	delete(next.assigned[uid], container)
	if len(next.assigned[uid]) == 0 {
		delete(next.assigned, uid)
	}
	next.shared = p.all().Difference(next.exclusive())
	return p.commitLocked(next)
}
