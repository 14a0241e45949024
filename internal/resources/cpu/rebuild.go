package cpu

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

// Kept is a container that runs, as the runtime keeps it to CPUs.
type Kept struct {
	UID       types.UID
	Container string
	CPUs      cpuset.CPUSet
	Shares    int64 // of CPU time; sharesOfOne for each CPU that it asks for
}

// sharesOfOne is how many shares of CPU time one CPU is asked for with.
const sharesOfOne = 1024

// rebuild is the state by which the containers run. Who has CPUs of its own is told by
// what the runtime keeps it to: as many as it asks for, none of those that are never
// anybody's own, and none that somebody else would have then. One that shares can look
// like that, too, where all that is shared is as many as it asks for: its pod puts that
// right when it is taken over, and until then nobody else gets these.
func (p *Pool) rebuild(running []Kept) state {
	s := state{p.all(), map[types.UID]map[string]cpuset.CPUSet{}}
	may := p.layout.all.Difference(p.reserved)
	looks := func(k Kept) bool {
		return !k.CPUs.IsEmpty() && k.Shares == int64(k.CPUs.Size())*sharesOfOne && k.CPUs.IsSubsetOf(may)
	}
	for i, k := range running {
		alone := looks(k)
		for j, other := range running {
			alone = alone && (i == j || !looks(other) || other.CPUs.Intersection(k.CPUs).IsEmpty())
		}
		if !alone {
			continue
		}
		s.put(k.UID, k.Container, k.CPUs)
		s.shared = s.shared.Difference(k.CPUs)
	}
	return s
}

// recover takes up what containers run by, in place of a state that cannot be used. It
// fails where that is not known, or does not fit this machine. Where there is no policy,
// nobody runs by anything.
func (p *Pool) recover() error {
	if p.cfg.Policy != PolicyStatic {
		return nil
	}
	running, err := p.cfg.Running()
	if err != nil {
		return fmt.Errorf("what containers run by is not known: %w", err)
	}
	p.state = p.rebuild(running)
	if err := p.check(); err != nil {
		return fmt.Errorf("what containers run by does not fit: %w", err)
	}
	return nil
}

// correctLocked shares what a container has for itself that does not want any: it was
// taken for an owner by what it runs by, by this agent or one before it.
func (p *Pool) correctLocked(uid types.UID, container string) error {
	if _, has := p.of(uid, container); !has {
		return nil
	}
	next := p.clone()
	delete(next.own[uid], container)
	if len(next.own[uid]) == 0 {
		delete(next.own, uid)
	}
	next.shared = p.all().Difference(next.exclusive())
	return p.becomeLocked(next)
}
