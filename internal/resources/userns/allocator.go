package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/checkpoint"
	"keelson/internal/pods/pod"
)

// Config holds what an Allocator is built from. Fields are required unless their
// comment says otherwise.
type Config struct {
	PodsDir string // where the pods' directories are
	IDs     Range  // of the node, for all pods together
	PerPod  uint32 // IDs of one pod; a multiple of 65536
	// Recover asks who else knows which IDs a pod has whose record cannot be used.
	// Optional.
	Recover func(types.UID) (Range, bool)
	// Unusable is told of each record that had to be put aside. Optional.
	Unusable func(error)
	Log      *slog.Logger
}

// Range is a run of IDs.
type Range struct {
	First uint32
	Count uint64
}

// Allocator gives ranges to pods. It is safe for concurrent use.
type Allocator struct {
	cfg   Config
	slots uint64 // how many pods fit

	mu   sync.Mutex
	pods map[types.UID]uint64 // slot of each pod
	used map[uint64]types.UID
	next uint64 // where to look first: a range rests as long as possible before it is given again
}

// New takes up the ranges that pods on this node have already.
func New(cfg Config) (*Allocator, error) {
	if cfg.PerPod == 0 || cfg.PerPod%65536 != 0 {
		return nil, fmt.Errorf("use %d IDs per pod: must be a multiple of 65536", cfg.PerPod)
	}
	if cfg.IDs.First < 65536 || cfg.IDs.First%65536 != 0 {
		return nil, fmt.Errorf("use IDs from %d for pods: must be a multiple of 65536 and leave the first 65536 to the node", cfg.IDs.First)
	}
	if end := uint64(cfg.IDs.First) + cfg.IDs.Count; end > 1<<32 {
		return nil, fmt.Errorf("use %d IDs from %d for pods: they end beyond the last ID there is", cfg.IDs.Count, cfg.IDs.First)
	}
	a := &Allocator{cfg: cfg, slots: cfg.IDs.Count / uint64(cfg.PerPod), pods: map[types.UID]uint64{}, used: map[uint64]types.UID{}}
	var lost []types.UID
	entries, err := os.ReadDir(cfg.PodsDir)
	if err != nil {
		return nil, fmt.Errorf("look for user namespaces of pods: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue // no pod's
		}
		uid := types.UID(e.Name())
		if err := a.restore(uid); err != nil {
			lost = append(lost, uid)
			err = checkpoint.PutAside(a.path(uid), err)
			cfg.Log.Error("cannot take up the user namespace of a pod", "uid", uid, "err", err)
			if cfg.Unusable != nil {
				cfg.Unusable(err)
			}
		}
	}
	for _, uid := range lost {
		a.recover(uid)
	}
	return a, nil
}

// recover takes up the IDs of a pod whose record is lost, so that nobody else gets
// them while it runs.
func (a *Allocator) recover(uid types.UID) {
	if a.cfg.Recover == nil {
		return
	}
	r, ok := a.cfg.Recover(uid)
	if !ok {
		return // it does not run
	}
	slot, err := a.slotOf(r.First, uint32(r.Count))
	if err == nil {
		err = a.record(uid, slot)
	}
	if err != nil {
		a.cfg.Log.Error("cannot take up the user namespace that the runtime says a pod has", "uid", uid, "err", err)
		return
	}
	a.cfg.Log.Info("the runtime knew the user namespace of the pod", "uid", uid, "first", r.First)
}

// restore takes up one pod's record, if there is one.
func (a *Allocator) restore(uid types.UID) error {
	b, err := checkpoint.Read(a.path(uid))
	if err != nil || b == nil {
		return err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("decode record: %w", err)
	}
	if len(r.UIDs) != 1 || len(r.GIDs) != 1 || r.UIDs[0] != r.GIDs[0] || r.UIDs[0].Container != 0 {
		return errors.New("want one range for users and groups alike")
	}
	slot, err := a.slotOf(r.UIDs[0].Host, r.UIDs[0].Length)
	if err != nil {
		return err
	}
	a.take(uid, slot)
	a.next = max(a.next, slot+1)
	return nil
}

// slotOf is the place of a range that nobody has yet.
func (a *Allocator) slotOf(first, n uint32) (uint64, error) {
	if n != a.cfg.PerPod || first < a.cfg.IDs.First || (first-a.cfg.IDs.First)%a.cfg.PerPod != 0 {
		return 0, fmt.Errorf("%d IDs from %d are not a range of this node", n, first)
	}
	slot := uint64(first-a.cfg.IDs.First) / uint64(a.cfg.PerPod)
	if other, taken := a.used[slot]; taken {
		return 0, fmt.Errorf("pod %s has the same IDs", other)
	}
	return slot, nil
}

func (a *Allocator) take(uid types.UID, slot uint64) {
	a.pods[uid], a.used[slot] = slot, uid
}

func (a *Allocator) path(uid types.UID) string {
	return filepath.Join(a.cfg.PodsDir, string(uid), file)
}

// Of is the pod's range: the one it has, or a free one, which is recorded in the
// pod's directory first.
func (a *Allocator) Of(uid types.UID) (Range, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slot, ok := a.pods[uid]; ok {
		return a.at(slot), nil
	}
	slot, err := a.free()
	if err != nil {
		return Range{}, err
	}
	if err := a.record(uid, slot); err != nil {
		return Range{}, err
	}
	a.next = slot + 1
	return a.at(slot), nil
}

// record writes down what the pod gets and then gives it.
func (a *Allocator) record(uid types.UID, slot uint64) error {
	m := []mapping{{Host: a.at(slot).First, Length: a.cfg.PerPod}}
	b, err := json.Marshal(record{UIDs: m, GIDs: m})
	if err == nil {
		err = checkpoint.Put(a.path(uid), b, checkpoint.How{Mode: 0o644})
	}
	if err != nil {
		return fmt.Errorf("record user namespace: %w", err)
	}
	a.take(uid, slot)
	return nil
}

func (a *Allocator) at(slot uint64) Range {
	return Range{First: a.cfg.IDs.First + uint32(slot)*a.cfg.PerPod, Count: uint64(a.cfg.PerPod)}
}

func (a *Allocator) free() (uint64, error) {
	for i := range a.slots {
		slot := (a.next + i) % a.slots
		if _, taken := a.used[slot]; !taken {
			return slot, nil
		}
	}
	return 0, pod.ShowAs("could not find an empty slot to allocate a user namespace",
		fmt.Errorf("allocate user namespace: all %d ranges of %d IDs are taken", a.slots, a.cfg.PerPod))
}

// Release gives the range of a pod that has ended back. Its record goes first: the
// pod's directory may be there for long, and by the record an agent after this one
// would take the range from the pod that has it then.
func (a *Allocator) Release(uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	slot, ok := a.pods[uid]
	if !ok {
		return nil
	}
	if err := os.Remove(a.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give back user namespace: %w", err)
	}
	delete(a.used, slot)
	delete(a.pods, uid)
	return nil
}
