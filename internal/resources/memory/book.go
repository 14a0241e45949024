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

	"keelson/internal/node/checkpoint"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/machine"
	"keelson/internal/resources/topology"
)

// Config holds what a Book is built from. Every field is required.
type Config struct {
	Dir    string // where the state file is
	Policy string
	Nodes  []machine.Node
	// PageSizes are those of huge pages that the machine has, in bytes.
	PageSizes []uint64
	// Kept is what is kept from pods on each node, and Whole what the node as a whole
	// keeps: the two have to agree.
	Kept  map[int]v1.ResourceList
	Whole v1.ResourceList
	// Running tells what the runtime keeps containers to that run; it is asked where the
	// state cannot be used.
	Running func() ([]Kept, error)
	// Unusable is told of a state that was put aside.
	Unusable func(error)
	Log      *slog.Logger
}

// Book keeps how much memory of which NUMA node is promised to whom. It is safe for
// concurrent use.
type Book struct {
	cfg     Config
	metrics metrics

	mu sync.Mutex
	state
	// again is what ordinary init containers of the pod had that was judged last, and
	// nobody after them has taken yet.
	again    map[reuse]uint64
	againFor types.UID
}

// reuse is where something is to be had again.
type reuse struct {
	nodes topology.Nodes
	of    v1.ResourceName
}

// New takes up the state that an earlier agent has left. One that cannot be read, or does
// not fit the machine or the configuration any more, is put aside, and what containers
// run by taken up; it is an error if that is not known.
func New(cfg Config) (*Book, error) {
	b := &Book{cfg: cfg, metrics: newMetrics(), again: map[reuse]uint64{}, state: state{machineState{}, promises{}}}
	var fresh machineState
	if cfg.Policy == PolicyStatic {
		reserved, err := Reserve(cfg.Nodes, cfg.Kept, cfg.Whole)
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
		fresh = empty(cfg.Nodes, cfg.PageSizes, reserved)
	}
	if err := b.load(fresh); err != nil {
		return nil, err
	}
	return b, b.write(b.state)
}

func (b *Book) path() string { return filepath.Join(b.cfg.Dir, fileState) }

func (b *Book) load(fresh machineState) error {
	path := b.path()
	if err := checkpoint.Sweep(path); err != nil {
		return err
	}
	advice := "could not restore state from checkpoint: %w, please drain this node and delete the memory manager checkpoint file %q before restarting Kubelet"
	content, err := checkpoint.Read(path)
	if err == nil && content != nil {
		b.state, err = decode(b.cfg.Policy, content)
	}
	if err == nil && b.cfg.Policy == PolicyStatic {
		if len(b.machine) == 0 && len(b.to) == 0 {
			b.machine = fresh
			return nil
		}
		if !b.fits(fresh) {
			err = errors.New("[memorymanager] the expected machine state is different from the real one")
			advice = "%w, please drain this node and delete the memory manager checkpoint file %q"
		}
	}
	if err == nil {
		return nil
	}
	if why := b.recover(fresh); why != nil {
		return fmt.Errorf(advice, fmt.Errorf("%w (%w)", err, why), path)
	}
	b.cfg.Unusable(checkpoint.PutAside(path, err))
	return nil
}

// fits reports whether the state is one that the machine can have come to: its nodes
// have what they had, and what is promised adds up to what containers were promised.
func (b *Book) fits(fresh machineState) bool {
	expected := state{fresh, promises{}}.clone().machine
	if expected.nodes() != b.machine.nodes() {
		return false
	}
	for _, containers := range b.to {
		for _, blocks := range containers {
			for _, one := range blocks {
				expected.take(topology.NodesOf(one.NUMAAffinity...), one.Type, one.Size)
			}
		}
	}
	for id, is := range b.machine {
		want := expected[id]
		if is.NumberOfAssignments != want.NumberOfAssignments || !slices.Equal(is.Cells, want.Cells) || len(is.MemoryMap) != len(want.MemoryMap) {
			return false
		}
		group := topology.NodesOf(is.Cells...)
		for name, a := range is.MemoryMap {
			w := want.MemoryMap[name]
			if w == nil || a.TotalMemSize != w.TotalMemSize || a.SystemReserved != w.SystemReserved || a.Allocatable != w.Allocatable {
				return false
			}
			// Which node of a group a promise is booked on depends on who came first.
			if b.machine.sum(group, name, free) != expected.sum(group, name, free) {
				return false
			}
		}
	}
	return true
}

func (b *Book) write(s state) error {
	content, err := encode(b.cfg.Policy, s)
	if err != nil {
		return fmt.Errorf("encode state of memory: %w", err)
	}
	return checkpoint.Write(b.path(), content)
}

func (b *Book) becomeLocked(s state) error {
	if reflect.DeepEqual(s, b.state) {
		return nil
	}
	if err := b.write(s); err != nil {
		return err
	}
	b.state = s
	return nil
}

// Assign promises the container memory of NUMA nodes, if it is to be kept to any.
func (b *Book) Assign(of *v1.Pod, c *v1.Container, at topology.Hint) error {
	want := b.wants(of, c)
	if len(want) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics.requests.Inc()
	err := b.assignLocked(of, c, want, at)
	if err != nil {
		b.metrics.errors.Inc()
	}
	return err
}

func (b *Book) assignLocked(of *v1.Pod, c *v1.Container, want map[v1.ResourceName]uint64, at topology.Hint) error {
	if have, ok := b.to[string(of.UID)][c.Name]; ok {
		b.reuseLocked(of, c, have)
		return nil
	}
	best, err := b.placeLocked(of, want, at)
	if err != nil {
		return err
	}
	next := b.clone()
	var blocks []block
	for _, name := range slices.Sorted(maps.Keys(want)) {
		size := want[name]
		blocks = append(blocks, block{best.Nodes.IDs(), name, size})
		next.machine.take(best.Nodes, name, size-min(size, b.reusableLocked(of.UID, best.Nodes, name)))
	}
	next.put(of.UID, c.Name, blocks)
	next.passOn(of, c, blocks)
	if err := b.becomeLocked(next); err != nil {
		return err
	}
	b.reuseLocked(of, c, blocks)
	return nil
}

// placeLocked finds the nodes that the container is kept to: those of the hint, more
// where these do not have enough, or the narrowest there are where there is no hint.
func (b *Book) placeLocked(of *v1.Pod, want map[v1.ResourceName]uint64, at topology.Hint) (topology.Hint, error) {
	best := at
	if at.Nodes == 0 {
		all := b.hintsLocked(of, want)
		if len(all) == 0 {
			return best, errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
		}
		if best = narrowest(all); !best.Preferred && at.Preferred {
			return best, errors.New("[memorymanager] failed to find the default preferred hint")
		}
	}
	for name, size := range want {
		if b.machine.sum(best.Nodes, name, free)+b.reusableLocked(of.UID, best.Nodes, name) >= size {
			continue
		}
		wider := slices.DeleteFunc(b.hintsLocked(of, want), func(h topology.Hint) bool { return !best.Nodes.Within(h.Nodes) })
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
	if !b.machine.serves(best.Nodes) {
		return best, errors.New("[memorymanager] preferred hint violates NUMA node allocation")
	}
	return best, nil
}

// narrowest is the preferred hint of the fewest nodes, or the one of the fewest.
func narrowest(all []topology.Hint) topology.Hint {
	return slices.MinFunc(all, func(a, b topology.Hint) int {
		switch {
		case a.Preferred != b.Preferred && a.Preferred, a.Preferred == b.Preferred && a.Nodes.NarrowerThan(b.Nodes):
			return -1
		case a == b:
			return 0
		}
		return 1
	})
}

// reusableLocked is what the pod's own init containers have done with.
func (b *Book) reusableLocked(uid types.UID, nodes topology.Nodes, of v1.ResourceName) uint64 {
	if b.againFor != uid {
		return 0
	}
	return b.again[reuse{nodes, of}]
}

// reuseLocked keeps what the containers of the pod after this one may have, too.
func (b *Book) reuseLocked(of *v1.Pod, c *v1.Container, blocks []block) {
	if b.againFor != of.UID {
		b.again, b.againFor = map[reuse]uint64{}, of.UID
	}
	kind, _, _ := pod.Find(of, c.Name)
	for _, one := range blocks {
		at := reuse{topology.NodesOf(one.NUMAAffinity...), one.Type}
		if have := b.again[at]; kind == pod.Init {
			b.again[at] = max(have, one.Size)
		} else {
			b.again[at] = have - min(have, one.Size)
		}
	}
}

// passOn takes from the init containers before this one what it has of theirs: it is
// given back once.
func (s state) passOn(of *v1.Pod, c *v1.Container, blocks []block) {
	for _, mine := range blocks {
		left := mine.Size
		for kind, before := range pod.Containers(of) {
			if before.Name == c.Name {
				break
			}
			if kind != pod.Init {
				continue
			}
			theirs := s.to[string(of.UID)][before.Name]
			for i := range theirs {
				if t := &theirs[i]; t.Type == mine.Type && slices.Equal(t.NUMAAffinity, mine.NUMAAffinity) {
					now := min(left, t.Size)
					t.Size, left = t.Size-now, left-now
				}
			}
		}
	}
}

// Contribute is the nodes that the container is kept to. When a regular container is
// made, the ordinary init containers have ended, and give back what they have left.
func (b *Book) Contribute(_ context.Context, of *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kind, _, _ := pod.Find(of, c.Name); kind == pod.Regular {
		if err := b.endInitLocked(of); err != nil {
			return pod.Contribution{}, err
		}
	}
	var nodes topology.Nodes
	for _, one := range b.to[string(of.UID)][c.Name] {
		nodes |= topology.NodesOf(one.NUMAAffinity...)
	}
	return pod.Contribution{Mems: nodes.String()}, nil
}

func (b *Book) endInitLocked(of *v1.Pod) error {
	next := b.clone()
	for kind, c := range pod.Containers(of) {
		had, has := next.to[string(of.UID)][c.Name]
		if kind != pod.Init || !has {
			continue
		}
		delete(next.to[string(of.UID)], c.Name)
		for _, one := range had {
			next.machine.giveBack(one)
		}
	}
	return b.becomeLocked(next)
}

// Release gives back what the pod was promised.
func (b *Book) Release(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.againFor == uid {
		b.again, b.againFor = map[reuse]uint64{}, ""
	}
	had, ok := b.to[string(uid)]
	if !ok {
		return
	}
	next := b.clone()
	delete(next.to, string(uid))
	for _, blocks := range had {
		for _, one := range blocks {
			next.machine.giveBack(one)
		}
	}
	if err := b.becomeLocked(next); err != nil {
		// What is written keeps memory for a pod that is gone; the next word on the
		// pod, or the next agent, tries again.
		b.cfg.Log.Error("cannot give back the memory of a pod that has ended", "uid", uid, "err", err)
	}
}

// Holders are the pods that were promised something.
func (b *Book) Holders() []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []types.UID
	for uid := range b.to {
		out = append(out, types.UID(uid))
	}
	return out
}
