package cpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/node/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/machine"
	"keelson/internal/resources/topology"
)

// Config holds what a Pool is built from. Every field is required unless its comment
// says otherwise.
type Config struct {
	Dir     string // where the state file is
	Policy  string
	Options Options
	Machine machine.Layout
	// ReservedCPUs are kept from containers that want CPUs of their own; where none
	// are named, Reserved are, in thousandths.
	ReservedCPUs cpuset.CPUSet
	Reserved     int64
	// SingleNode says that the topology policy wants all on one NUMA node.
	SingleNode bool
	// Whose tells of the runtime's containers; it is asked for a state of old alone.
	Whose Whose
	// Running tells what the runtime keeps containers to that run; it is asked where the
	// state cannot be used.
	Running func() ([]Kept, error)
	// Unusable is told of a state that was put aside.
	Unusable func(error)
	// Aligned counts containers whose CPUs keep to a boundary as the options
	// promise, or do not.
	Aligned func(boundary string, ok bool)
	// OnChange is called when the shared CPUs have changed; it must not block.
	OnChange func()
	Log      *slog.Logger
}

// Pool keeps which CPUs are whose. It is safe for concurrent use.
type Pool struct {
	cfg      Config
	layout   *layout
	reserved cpuset.CPUSet
	// whole are all threads of cores of which any is reserved.
	whole   cpuset.CPUSet
	metrics metrics

	mu sync.Mutex
	state
	// again is what ordinary init containers of the pod had that was judged last, and
	// nobody after them has taken yet.
	again    cpuset.CPUSet
	againFor types.UID
}

// New takes up the state that an earlier agent has left. One that cannot be read, or does
// not fit the machine or the configuration any more, is put aside, and what containers
// run by taken up; it is an error if that is not known.
func New(cfg Config) (*Pool, error) {
	p := &Pool{cfg: cfg, layout: newLayout(cfg.Machine), metrics: newMetrics(), reserved: cpuset.New(), whole: cpuset.New(), again: cpuset.New()}
	if cfg.Policy == PolicyStatic {
		if err := p.reserve(); err != nil {
			return nil, fmt.Errorf("new static policy error: %w", err)
		}
	}
	if err := p.load(); err != nil {
		return nil, err
	}
	p.measure()
	return p, nil
}

// reserve fixes which CPUs are never anybody's own.
func (p *Pool) reserve() error {
	if err := p.cfg.Options.fits(p.layout, p.cfg.SingleNode); err != nil {
		return err
	}
	n := int((p.cfg.Reserved + 999) / 1000)
	if p.reserved = p.cfg.ReservedCPUs; p.reserved.IsEmpty() {
		if n == 0 {
			return errors.New("[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
		}
		if p.layout.all.Size() >= n {
			p.reserved = p.layout.pack(p.layout.all, n, Options{AcrossCores: p.cfg.Options.AcrossCores, ByCache: p.cfg.Options.ByCache})
		}
		if p.reserved.Size() != n {
			return fmt.Errorf("[cpumanager] unable to reserve the required amount of CPUs (size of %s did not equal %d)", p.reserved, n)
		}
	}
	if p.cfg.Options.FullCores {
		p.whole = p.layout.cores(p.reserved)
	}
	return nil
}

// all are the CPUs that containers may be on.
func (p *Pool) all() cpuset.CPUSet {
	if p.cfg.Options.Strict {
		return p.layout.all.Difference(p.reserved)
	}
	return p.layout.all
}

func (p *Pool) path() string { return filepath.Join(p.cfg.Dir, fileState) }

func (p *Pool) load() error {
	path := p.path()
	if err := checkpoint.Sweep(path); err != nil {
		return err
	}
	p.state = state{cpuset.New(), map[types.UID]map[string]cpuset.CPUSet{}}
	none, advice := p.clone(), "could not restore state from checkpoint: %w, please drain this node and delete the CPU manager checkpoint file %q before restarting Kubelet"
	content, err := checkpoint.Read(path)
	if err == nil && content != nil {
		p.state, err = decode(p.cfg.Policy, content, p.cfg.Whose)
	}
	if err == nil && p.cfg.Policy == PolicyStatic {
		if p.shared.IsEmpty() && len(p.own) == 0 {
			p.shared = p.all()
		}
		advice = "static policy invalid state, please drain node and remove policy state file %[2]q: %[1]w"
		err = p.check()
	}
	if err != nil {
		p.state = none
		if why := p.recover(); why != nil {
			return fmt.Errorf(advice, fmt.Errorf("%w (%w)", err, why), path)
		}
		p.cfg.Unusable(checkpoint.PutAside(path, err))
	}
	return p.write(p.state)
}

// check compares the state with the machine and the configuration.
func (p *Pool) check() error {
	if p.shared.IsEmpty() && !(p.cfg.Options.Strict && p.exclusive().Equals(p.all())) { // all of them can be somebody's
		return errors.New("default cpuset cannot be empty")
	}
	kept := p.reserved.Intersection(p.shared)
	switch {
	case p.cfg.Options.Strict && !kept.IsEmpty():
		return fmt.Errorf("some of strictly reserved cpus: \"%s\" are present in defaultCpuSet: \"%s\"", kept, p.shared)
	case !p.cfg.Options.Strict && !kept.Equals(p.reserved):
		return fmt.Errorf("not all reserved cpus: \"%s\" are present in defaultCpuSet: \"%s\"", p.reserved, p.shared)
	}
	for uid, containers := range p.own {
		for name, set := range containers {
			if !set.Intersection(p.shared).IsEmpty() {
				return fmt.Errorf("pod: %s, container: %s cpuset: \"%s\" overlaps with default cpuset \"%s\"", uid, name, set, p.shared)
			}
		}
	}
	if known := p.shared.Union(p.exclusive()); !known.Equals(p.all()) {
		return fmt.Errorf("current set of available CPUs \"%s\" doesn't match with CPUs in state \"%s\"", p.all(), known)
	}
	return nil
}

func (p *Pool) write(s state) error {
	content, err := encode(p.cfg.Policy, s)
	if err != nil {
		return fmt.Errorf("encode state of CPUs: %w", err)
	}
	return checkpoint.Write(p.path(), content)
}

// becomeLocked makes s the state once it is written.
func (p *Pool) becomeLocked(s state) error {
	if err := p.write(s); err != nil {
		return err
	}
	moved := !s.shared.Equals(p.shared)
	p.state = s
	p.measure()
	if moved {
		p.cfg.OnChange()
	}
	return nil
}

// free are the CPUs that somebody could get for itself.
func (p *Pool) freeLocked() cpuset.CPUSet { return p.shared.Difference(p.reserved) }

// reusable is what the pod's own init containers have done with.
func (p *Pool) reusableLocked(uid types.UID) cpuset.CPUSet {
	if p.againFor == uid {
		return p.again
	}
	return cpuset.New()
}

// Assign gives the container CPUs of its own, if it wants any and has none.
func (p *Pool) Assign(of *v1.Pod, c *v1.Container, at topology.Hint) error {
	n := p.wants(of, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 0 {
		return p.correctLocked(of.UID, c.Name)
	}
	p.metrics.requests.Inc()
	err := p.assignLocked(of, c, n, at)
	if err != nil {
		p.metrics.errors.Inc()
	}
	return err
}

func (p *Pool) assignLocked(of *v1.Pod, c *v1.Container, n int, at topology.Hint) error {
	if set, has := p.of(of.UID, c.Name); has { // before anything is asked of what is left: it has its part of that
		p.reuseLocked(of, c, set)
		return nil
	}
	if p.cfg.Options.FullCores {
		if err := p.wholeCoresLocked(n); err != nil {
			p.cfg.Aligned(BoundaryCore, false)
			return err
		}
	}
	free := p.freeLocked().Union(p.reusableLocked(of.UID))
	near := cpuset.New()
	if at.Nodes != 0 {
		near = p.layout.within(free, at.Nodes)
		if p.cfg.Options.BySocket {
			near = p.layout.besides(free, at.Nodes)
		}
	}
	set, err := p.layout.choose(near, min(n, near.Size()), p.cfg.Options)
	if err != nil {
		return err
	}
	rest, err := p.layout.choose(free.Difference(set), n-set.Size(), p.cfg.Options)
	if err != nil {
		return err
	}
	set = set.Union(rest)
	next := p.clone()
	next.put(of.UID, c.Name, set)
	next.shared = next.shared.Difference(set)
	if err := p.becomeLocked(next); err != nil {
		return err
	}
	p.reuseLocked(of, c, set)
	p.countAligned(set)
	return nil
}

// wholeCoresLocked refuses what cannot be had in whole cores.
func (p *Pool) wholeCoresLocked(n int) error {
	if n%p.layout.perCore != 0 {
		return &pod.Refusal{Reason: ReasonCores, Message: fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", n, p.layout.perCore)}
	}
	if have := p.freeLocked().Difference(p.whole).Size(); n > have {
		return &pod.Refusal{Reason: ReasonCores, Message: fmt.Sprintf(
			"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", have, n, p.layout.perCore)}
	}
	return nil
}

// reuseLocked keeps what the containers of the pod after this one may have, too: what
// an init container has, which has ended by then, and not what one after it has taken.
func (p *Pool) reuseLocked(of *v1.Pod, c *v1.Container, set cpuset.CPUSet) {
	have := p.reusableLocked(of.UID)
	switch kind, _, _ := pod.Find(of, c.Name); kind {
	case pod.Init:
		have = have.Union(set)
	case pod.Sidecar:
	default:
		have = have.Difference(set)
	}
	p.again, p.againFor = have, of.UID
}

// Contribute is the CPUs that the container is kept to: its own, or the shared ones.
func (p *Pool) Contribute(_ context.Context, of *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set, own := p.of(of.UID, c.Name)
	if !own {
		set = p.shared
	}
	return pod.Contribution{CPUs: set.String()}, nil
}

// Of are the CPUs that the container is kept to, and whether they are its own.
func (p *Pool) Of(uid types.UID, container string) (set cpuset.CPUSet, own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set, own = p.of(uid, container); !own {
		set = p.shared
	}
	return set, own
}

// Allocatable are the CPUs that somebody could have for itself if nobody had any.
func (p *Pool) Allocatable() cpuset.CPUSet { return p.layout.all.Difference(p.reserved) }

// Release shares what the pod had for itself.
func (p *Pool) Release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.againFor == uid {
		p.again, p.againFor = cpuset.New(), ""
	}
	had, ok := p.own[uid]
	if !ok {
		return
	}
	next := p.clone()
	delete(next.own, uid)
	for _, set := range had {
		next.shared = next.shared.Union(set)
	}
	if err := p.becomeLocked(next); err != nil {
		// What is written is on the safe side: it keeps CPUs for a pod that is gone,
		// and the next word on the pod, or the next agent, tries again.
		p.cfg.Log.Error("cannot share the CPUs of a pod that has ended", "uid", uid, "err", err)
	}
}

// Holders are the pods that have CPUs of their own.
func (p *Pool) Holders() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.own))
}
