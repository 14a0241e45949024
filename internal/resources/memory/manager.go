package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
)

// Config holds the configuration of a Manager. All fields are required.
type Config struct {
	Dir    string // of the checkpoint
	Policy string
	Nodes  []machine.Node
	// PageSizes are the huge page sizes of the machine, in bytes.
	PageSizes []uint64
	// Reserved is the reserved memory of each NUMA node, and NodeReserved that of the node. Their sums have to agree.
	Reserved     map[int]v1.ResourceList
	NodeReserved v1.ResourceList
	// Running returns the running containers with their memory in the runtime. It is called only if the checkpoint
	// cannot be restored.
	Running func() ([]Pinned, error)
	// OnCorrupt is called with the error of a checkpoint that was set aside.
	OnCorrupt func(error)
	Log       *slog.Logger
}

// Manager owns the assignment of memory of NUMA nodes to containers. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	metrics metrics

	mu sync.Mutex
	state
	// reusable is the memory that the pod of the last allocation can reuse: that of its init containers which was not
	// allocated to a later container.
	reusable    map[reusableKey]uint64
	reusableFor types.UID
}

// reusableKey identifies reusable memory.
type reusableKey struct {
	nodes numa.Nodes
	of    v1.ResourceName
}

// New restores the checkpoint. If it cannot be read, or does not fit the machine or the configuration, it is set aside
// and the assignments are rebuilt from the running containers. New fails if that is not possible either.
func New(cfg Config) (*Manager, error) {
	b := &Manager{
		cfg:      cfg,
		metrics:  newMetrics(),
		reusable: map[reusableKey]uint64{},
		state:    state{machineState{}, assignments{}},
	}
	var fresh machineState
	if cfg.Policy == PolicyStatic {
		reserved, err := Reserve(cfg.Nodes, cfg.Reserved, cfg.NodeReserved)
		if err != nil {
			return nil, err
		}
		kept := uint64(0)
		for _, of := range reserved {
			kept += of[v1.ResourceMemory]
		}
		if kept == 0 {
			return nil, errors.New("[memorymanager] you should specify the system reserved memory")
		}
		fresh = newMachineState(cfg.Nodes, cfg.PageSizes, reserved)
	}
	if err := b.load(fresh); err != nil {
		return nil, err
	}
	return b, b.write(b.state)
}

func (b *Manager) path() string { return filepath.Join(b.cfg.Dir, fileState) }

func (b *Manager) load(fresh machineState) error {
	path := b.path()
	if err := checkpoint.Sweep(path); err != nil {
		return err
	}
	advice := "could not restore state from checkpoint: %w, please drain this node and delete the memory manager " +
		"checkpoint file %q before restarting Kubelet"
	content, err := checkpoint.Read(path)
	if err == nil && content != nil {
		b.state, err = decode(b.cfg.Policy, content)
	}
	if err == nil && b.cfg.Policy == PolicyStatic {
		if len(b.machine) == 0 && len(b.assigned) == 0 {
			b.machine = fresh
			return nil
		}
		if !b.matches(fresh) {
			err = errors.New("[memorymanager] the expected machine state is different from the real one")
			advice = "%w, please drain this node and delete the memory manager checkpoint file %q"
		}
	}
	if err == nil {
		return nil
	}
	if why := b.recoverState(fresh); why != nil {
		return fmt.Errorf(advice, fmt.Errorf("%w (%w)", err, why), path)
	}
	b.cfg.OnCorrupt(checkpoint.PutAside(path, err))
	return nil
}

// matches reports whether the state is consistent with the machine: the nodes have the same capacity, and their
// reserved memory is the sum of the assignments.
func (b *Manager) matches(fresh machineState) bool {
	expected := state{fresh, assignments{}}.clone().machine
	if expected.nodes() != b.machine.nodes() {
		return false
	}
	for _, containers := range b.assigned {
		for _, blocks := range containers {
			for _, one := range blocks {
				expected.reserve(numa.NodesOf(one.NUMAAffinity...), one.Type, one.Size)
			}
		}
	}
	for id, is := range b.machine {
		want := expected[id]
		if is.NumberOfAssignments != want.NumberOfAssignments || !slices.Equal(is.Cells, want.Cells) ||
			len(is.MemoryMap) != len(want.MemoryMap) {
			return false
		}
		group := numa.NodesOf(is.Cells...)
		for name, a := range is.MemoryMap {
			w := want.MemoryMap[name]
			if w == nil || a.TotalMemSize != w.TotalMemSize || a.SystemReserved != w.SystemReserved ||
				a.Allocatable != w.Allocatable {
				return false
			}
			// On which node of a group memory was reserved depends on the order of the allocations.
			if b.machine.sum(group, name, free) != expected.sum(group, name, free) {
				return false
			}
		}
	}
	return true
}

func (b *Manager) write(s state) error {
	content, err := encode(b.cfg.Policy, s)
	if err != nil {
		return fmt.Errorf("encode state of memory: %w", err)
	}
	return checkpoint.Write(b.path(), content)
}

func (b *Manager) commitLocked(s state) error {
	if reflect.DeepEqual(s, b.state) {
		return nil
	}
	if err := b.write(s); err != nil {
		return err
	}
	b.state = s
	return nil
}

// Allocate allocates memory of NUMA nodes to the container, if the policy pins it.
func (b *Manager) Allocate(of *v1.Pod, c *v1.Container, at numa.Hint) error {
	want := b.requested(of, c)
	if len(want) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics.requests.Inc()
	err := b.allocateLocked(of, c, want, at)
	if err != nil {
		b.metrics.errors.Inc()
	}
	return err
}

func (b *Manager) allocateLocked(of *v1.Pod, c *v1.Container, want map[v1.ResourceName]uint64, at numa.Hint) error {
	if have, ok := b.assigned[string(of.UID)][c.Name]; ok {
		b.updateReusableLocked(of, c, have)
		return nil
	}
	best, err := b.affinityLocked(of, want, at)
	if err != nil {
		return err
	}
	next := b.clone()
	var blocks []block
	for _, name := range slices.Sorted(maps.Keys(want)) {
		size := want[name]
		blocks = append(blocks, block{best.Nodes.IDs(), name, size})
		next.machine.reserve(best.Nodes, name, size-min(size, b.reusableLocked(of.UID, best.Nodes, name)))
	}
	next.put(of.UID, c.Name, blocks)
	next.reduceInit(of, c, blocks)
	if err := b.commitLocked(next); err != nil {
		return err
	}
	b.updateReusableLocked(of, c, blocks)
	return nil
}

// affinityLocked returns the nodes to which the container is pinned: those of the hint, more if they do not have enough
// memory, or the narrowest possible ones without a hint.
func (b *Manager) affinityLocked(of *v1.Pod, want map[v1.ResourceName]uint64, at numa.Hint) (numa.Hint, error) {
	best := at
	if at.Nodes == 0 {
		all := b.hintsLocked(of, want)
		if len(all) == 0 {
			return best, errors.New(
				"[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough " +
					"memory is available")
		}
		if best = narrowest(all); !best.Preferred && at.Preferred {
			return best, errors.New("[memorymanager] failed to find the default preferred hint")
		}
	}
	for name, size := range want {
		if b.machine.sum(best.Nodes, name, free)+b.reusableLocked(of.UID, best.Nodes, name) >= size {
			continue
		}
		wider := slices.DeleteFunc(b.hintsLocked(of, want),
			func(h numa.Hint) bool { return !best.Nodes.Within(h.Nodes) })
		if len(wider) == 0 {
			return best, errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
		}
		h := narrowest(wider)
		if !h.Preferred && best.Preferred {
			return best, errors.New("[memorymanager] failed to find the extended preferred hint")
		}
		best = h
		break
	}
	if !b.machine.canServe(best.Nodes) {
		return best, errors.New("[memorymanager] preferred hint violates NUMA node allocation")
	}
	return best, nil
}

// narrowest returns the preferred hint with the fewest nodes, or else the hint with the fewest nodes.
func narrowest(all []numa.Hint) numa.Hint {
	return slices.MinFunc(all, func(a, b numa.Hint) int {
		switch {
		case a.Preferred != b.Preferred && a.Preferred, a.Preferred == b.Preferred && a.Nodes.NarrowerThan(b.Nodes):
			return -1
		case a == b:
			return 0
		}
		return 1
	})
}

// reusableLocked returns the memory that the pod can reuse from its own init containers.
func (b *Manager) reusableLocked(uid types.UID, nodes numa.Nodes, of v1.ResourceName) uint64 {
	if b.reusableFor != uid {
		return 0
	}
	return b.reusable[reusableKey{nodes, of}]
}

// updateReusableLocked updates what later containers of the pod can reuse.
func (b *Manager) updateReusableLocked(of *v1.Pod, c *v1.Container, blocks []block) {
	if b.reusableFor != of.UID {
		b.reusable, b.reusableFor = map[reusableKey]uint64{}, of.UID
	}
	kind, _, _ := pod.Find(of, c.Name)
	for _, one := range blocks {
		at := reusableKey{numa.NodesOf(one.NUMAAffinity...), one.Type}
		if have := b.reusable[at]; kind == pod.Init {
			b.reusable[at] = max(have, one.Size)
		} else {
			b.reusable[at] = have - min(have, one.Size)
		}
	}
}

// reduceInit reduces the assignments of earlier init containers by the memory that this container reuses, so that it is
// released only once.
func (s state) reduceInit(of *v1.Pod, c *v1.Container, blocks []block) {
	for _, mine := range blocks {
		left := mine.Size
		for kind, before := range pod.Containers(of) {
			if before.Name == c.Name {
				break
			}
			if kind != pod.Init {
				continue
			}
			theirs := s.assigned[string(of.UID)][before.Name]
			for i := range theirs {
				if t := &theirs[i]; t.Type == mine.Type && slices.Equal(t.NUMAAffinity, mine.NUMAAffinity) {
					now := min(left, t.Size)
					t.Size, left = t.Size-now, left-now
				}
			}
		}
	}
}

// Contribute returns the NUMA nodes of the container. When a regular container is created, the init containers have
// terminated, and their remaining memory is released.
func (b *Manager) Contribute(_ context.Context, of *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kind, _, _ := pod.Find(of, c.Name); kind == pod.Regular {
		if err := b.releaseInitLocked(of); err != nil {
			return pod.Contribution{}, err
		}
	}
	var nodes numa.Nodes
	for _, one := range b.assigned[string(of.UID)][c.Name] {
		nodes |= numa.NodesOf(one.NUMAAffinity...)
	}
	return pod.Contribution{Mems: nodes.String()}, nil
}

func (b *Manager) releaseInitLocked(of *v1.Pod) error {
	next := b.clone()
	for kind, c := range pod.Containers(of) {
		had, has := next.assigned[string(of.UID)][c.Name]
		if kind != pod.Init || !has {
			continue
		}
		delete(next.assigned[string(of.UID)], c.Name)
		for _, one := range had {
			next.machine.release(one)
		}
	}
	return b.commitLocked(next)
}

// Release releases the memory of the pod.
func (b *Manager) Release(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reusableFor == uid {
		b.reusable, b.reusableFor = map[reusableKey]uint64{}, ""
	}
	had, ok := b.assigned[string(uid)]
	if !ok {
		return
	}
	next := b.clone()
	delete(next.assigned, string(uid))
	for _, blocks := range had {
		for _, one := range blocks {
			next.machine.release(one)
		}
	}
	if err := b.commitLocked(next); err != nil {
		// The checkpoint still has the memory of a pod that is gone. The next release, or the next agent, tries again.
		b.cfg.Log.Error("failed to release memory of terminated pod", "podUID", uid, "err", err)
	}
}

// Holders returns the pods with assigned memory.
func (b *Manager) Holders() []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []types.UID
	for uid := range b.assigned {
		out = append(out, types.UID(uid))
	}
	return out
}
