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

	"keelson/internal/host/checkpoint"
	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// Config holds the configuration of a Manager. All fields are required unless noted otherwise.
type Config struct {
	Dir     string // of the checkpoint
	Policy  string
	Options Options
	Machine machine.Layout
	// ReservedCPUs are never exclusive. If there are none, Reserved CPUs, in millicores, are selected.
	ReservedCPUs cpuset.CPUSet
	Reserved     int64
	// SingleNode is set if the topology manager policy is single-numa-node.
	SingleNode bool
	// FindContainer resolves container IDs. It is called only to restore a checkpoint of the first format.
	FindContainer FindContainer
	// Running returns the running containers with their CPUs in the runtime. It is called only if the checkpoint
	// cannot be restored.
	Running func() ([]Pinned, error)
	// OnCorrupt is called with the error of a checkpoint that was set aside.
	OnCorrupt func(error)
	// CountAligned counts whether the CPUs of a container are aligned to a boundary that the options require.
	CountAligned func(boundary string, ok bool)
	// OnChange is called when the shared pool has changed. It must not block.
	OnChange func()
	Log      *slog.Logger
}

// Manager owns the CPU assignments. It is safe for concurrent use.
type Manager struct {
	cfg      Config
	layout   *layout
	reserved cpuset.CPUSet
	// reservedCores are all threads of the cores with reserved CPUs. They are set with the option full-pcpus-only only.
	reservedCores cpuset.CPUSet
	metrics       metrics

	mu sync.Mutex
	state
	// reusable are the CPUs that the pod of the last allocation can reuse: those of its init containers that were not
	// allocated to a later container.
	reusable    cpuset.CPUSet
	reusableFor types.UID
}

// New restores the checkpoint. If it cannot be read, or does not fit the machine or the configuration, it is set aside
// and the assignments are rebuilt from the running containers. New fails if that is not possible either.
func New(cfg Config) (*Manager, error) {
	p := &Manager{
		cfg:           cfg,
		layout:        newLayout(cfg.Machine),
		metrics:       newMetrics(),
		reserved:      cpuset.New(),
		reservedCores: cpuset.New(),
		reusable:      cpuset.New(),
	}
	if cfg.Policy == PolicyStatic {
		if err := p.reserve(); err != nil {
			return nil, fmt.Errorf("new static policy error: %w", err)
		}
	}
	if err := p.load(); err != nil {
		return nil, err
	}
	p.updateMetrics()
	return p, nil
}

// reserve selects the reserved CPUs.
func (p *Manager) reserve() error {
	if err := p.cfg.Options.validate(p.layout, p.cfg.SingleNode); err != nil {
		return err
	}
	n := int((p.cfg.Reserved + 999) / 1000)
	if p.reserved = p.cfg.ReservedCPUs; p.reserved.IsEmpty() {
		if n == 0 {
			return errors.New(
				"[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater " +
					"than zero")
		}
		if p.layout.all.Size() >= n {
			p.reserved = p.layout.pack(p.layout.all, n, Options{
				AcrossCores: p.cfg.Options.AcrossCores,
				ByCache:     p.cfg.Options.ByCache,
			})
		}
		if p.reserved.Size() != n {
			return fmt.Errorf(
				"[cpumanager] unable to reserve the required amount of CPUs (size of %s did not equal %d)",
				p.reserved, n)
		}
	}
	if p.cfg.Options.FullCores {
		p.reservedCores = p.layout.cores(p.reserved)
	}
	return nil
}

// all returns the CPUs that containers may use.
func (p *Manager) all() cpuset.CPUSet {
	if p.cfg.Options.Strict {
		return p.layout.all.Difference(p.reserved)
	}
	return p.layout.all
}

func (p *Manager) path() string { return filepath.Join(p.cfg.Dir, fileState) }

func (p *Manager) load() error {
	path := p.path()
	if err := checkpoint.Sweep(path); err != nil {
		return err
	}
	p.state = state{cpuset.New(), map[types.UID]map[string]cpuset.CPUSet{}}
	none, advice := p.clone(), "could not restore state from checkpoint: %w, please drain this node and delete the CPU "+
		"manager checkpoint file %q before restarting Kubelet"
	content, err := checkpoint.Read(path)
	if err == nil && content != nil {
		p.state, err = decode(p.cfg.Policy, content, p.cfg.FindContainer)
	}
	if err == nil && p.cfg.Policy == PolicyStatic {
		if p.shared.IsEmpty() && len(p.assigned) == 0 {
			p.shared = p.all()
		}
		advice = "static policy invalid state, please drain node and remove policy state file %[2]q: %[1]w"
		err = p.check()
	}
	if err != nil {
		p.state = none
		if why := p.recoverState(); why != nil {
			return fmt.Errorf(advice, fmt.Errorf("%w (%w)", err, why), path)
		}
		p.cfg.OnCorrupt(checkpoint.PutAside(path, err))
	}
	return p.write(p.state)
}

// check validates the state against the machine and the configuration.
func (p *Manager) check() error {
	if p.shared.IsEmpty() && !(p.cfg.Options.Strict && p.exclusive().Equals(p.all())) { // all CPUs may be exclusive
		return errors.New("default cpuset cannot be empty")
	}
	kept := p.reserved.Intersection(p.shared)
	switch {
	case p.cfg.Options.Strict && !kept.IsEmpty():
		return fmt.Errorf("some of strictly reserved cpus: \"%s\" are present in defaultCpuSet: \"%s\"", kept, p.shared)
	case !p.cfg.Options.Strict && !kept.Equals(p.reserved):
		return fmt.Errorf("not all reserved cpus: \"%s\" are present in defaultCpuSet: \"%s\"", p.reserved, p.shared)
	}
	for uid, containers := range p.assigned {
		for name, set := range containers {
			if !set.Intersection(p.shared).IsEmpty() {
				return fmt.Errorf("pod: %s, container: %s cpuset: \"%s\" overlaps with default cpuset \"%s\"",
					uid, name, set, p.shared)
			}
		}
	}
	if known := p.shared.Union(p.exclusive()); !known.Equals(p.all()) {
		return fmt.Errorf("current set of available CPUs \"%s\" doesn't match with CPUs in state \"%s\"", p.all(),
			known)
	}
	return nil
}

func (p *Manager) write(s state) error {
	content, err := encode(p.cfg.Policy, s)
	if err != nil {
		return fmt.Errorf("encode state of CPUs: %w", err)
	}
	return checkpoint.Write(p.path(), content)
}

// commitLocked writes the checkpoint of s and then makes it the current state.
func (p *Manager) commitLocked(s state) error {
	if err := p.write(s); err != nil {
		return err
	}
	moved := !s.shared.Equals(p.shared)
	p.state = s
	p.updateMetrics()
	if moved {
		p.cfg.OnChange()
	}
	return nil
}

// freeLocked returns the CPUs that can be allocated exclusively.
func (p *Manager) freeLocked() cpuset.CPUSet { return p.shared.Difference(p.reserved) }

// reusableLocked returns the CPUs that the pod can reuse from its own init containers.
func (p *Manager) reusableLocked(uid types.UID) cpuset.CPUSet {
	if p.reusableFor == uid {
		return p.reusable
	}
	return cpuset.New()
}

// Allocate allocates exclusive CPUs to the container if it requests them and has none.
func (p *Manager) Allocate(of *v1.Pod, c *v1.Container, at numa.Hint) error {
	n := p.guaranteedCPUs(of, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 0 {
		return p.releaseContainerLocked(of.UID, c.Name)
	}
	p.metrics.requests.Inc()
	err := p.allocateLocked(of, c, n, at)
	if err != nil {
		p.metrics.errors.Inc()
	}
	return err
}

func (p *Manager) allocateLocked(of *v1.Pod, c *v1.Container, n int, at numa.Hint) error {
	if set, has := p.assignedTo(of.UID, c.Name); has { // first of all: its CPUs are not among the free ones
		p.updateReusableLocked(of, c, set)
		return nil
	}
	if p.cfg.Options.FullCores {
		if err := p.checkFullCoresLocked(n); err != nil {
			p.cfg.CountAligned(BoundaryCore, false)
			return err
		}
	}
	free := p.freeLocked().Union(p.reusableLocked(of.UID))
	near := cpuset.New()
	if at.Nodes != 0 {
		near = p.layout.inNodes(free, at.Nodes)
		if p.cfg.Options.BySocket {
			near = p.layout.onSocketsOf(free, at.Nodes)
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
	if err := p.commitLocked(next); err != nil {
		return err
	}
	p.updateReusableLocked(of, c, set)
	p.countAligned(set)
	return nil
}

// checkFullCoresLocked returns a rejection if n CPUs cannot be allocated in whole cores.
func (p *Manager) checkFullCoresLocked(n int) error {
	if n%p.layout.perCore != 0 {
		return &pod.Rejection{
			Reason: ReasonSMTAlignment,
			Message: fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", n,
				p.layout.perCore),
		}
	}
	if have := p.freeLocked().Difference(p.reservedCores).Size(); n > have {
		return &pod.Rejection{
			Reason: ReasonSMTAlignment,
			Message: fmt.Sprintf(
				"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs "+
					"per core = %d", have, n, p.layout.perCore),
		}
	}
	return nil
}

// updateReusableLocked updates what later containers of the pod can reuse. The CPUs of an init container are added,
// because it terminates before the next container starts. The CPUs of any other container are removed.
func (p *Manager) updateReusableLocked(of *v1.Pod, c *v1.Container, set cpuset.CPUSet) {
	have := p.reusableLocked(of.UID)
	switch kind, _, _ := pod.Find(of, c.Name); kind {
	case pod.Init:
		have = have.Union(set)
	case pod.Sidecar:
	default:
		have = have.Difference(set)
	}
	p.reusable, p.reusableFor = have, of.UID
}

// Contribute returns the CPUs of the container: its exclusive ones, or the shared pool.
func (p *Manager) Contribute(_ context.Context, of *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set, own := p.assignedTo(of.UID, c.Name)
	if !own {
		set = p.shared
	}
	return pod.Contribution{CPUs: set.String()}, nil
}

// CPUs returns the CPUs of the container and whether they are exclusive.
func (p *Manager) CPUs(uid types.UID, container string) (set cpuset.CPUSet, own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set, own = p.assignedTo(uid, container); !own {
		set = p.shared
	}
	return set, own
}

// Allocatable returns the CPUs that can be allocated exclusively on an empty node.
func (p *Manager) Allocatable() cpuset.CPUSet { return p.layout.all.Difference(p.reserved) }

// Release returns the pod's exclusive CPUs to the shared pool.
func (p *Manager) Release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reusableFor == uid {
		p.reusable, p.reusableFor = cpuset.New(), ""
	}
	had, ok := p.assigned[uid]
	if !ok {
		return
	}
	next := p.clone()
	delete(next.assigned, uid)
	for _, set := range had {
		next.shared = next.shared.Union(set)
	}
	if err := p.commitLocked(next); err != nil {
		// The checkpoint still has the CPUs of a pod that is gone. The next release, or the next agent, tries again.
		p.cfg.Log.Error("failed to release CPUs of terminated pod", "podUID", uid, "err", err)
	}
}

// Holders returns the pods with exclusive CPUs.
func (p *Manager) Holders() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.assigned))
}
