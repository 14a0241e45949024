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

	"keelson/internal/host/checkpoint"
	"keelson/internal/pods/pod"
)

// Config holds the configuration of an Allocator. All fields are required unless noted otherwise.
type Config struct {
	PodsDir string // the parent of the pods' directories
	IDs     Range  // of the node, for all pods
	PerPod  uint32 // number of IDs per pod; a multiple of 65536
	// Recover returns the IDs that the runtime reports for a pod whose record cannot be used. Optional.
	Recover func(types.UID) (Range, bool)
	// OnCorrupt is called with the error of each record that was set aside. Optional.
	OnCorrupt func(error)
	Log       *slog.Logger
}

// Range is a contiguous range of IDs.
type Range struct {
	First uint32
	Count uint64
}

// Allocator allocates ranges to pods. It is safe for concurrent use.
type Allocator struct {
	cfg   Config
	slots uint64 // maximum number of pods

	mu   sync.Mutex
	pods map[types.UID]uint64 // slot of each pod
	used map[uint64]types.UID
	next uint64 // where the search starts, so that a released range is reused as late as possible
}

// New restores the ranges of the pods on this node.
func New(cfg Config) (*Allocator, error) {
	if cfg.PerPod == 0 || cfg.PerPod%65536 != 0 {
		return nil, fmt.Errorf("use %d IDs per pod: must be a multiple of 65536", cfg.PerPod)
	}
	if cfg.IDs.First < 65536 || cfg.IDs.First%65536 != 0 {
		return nil, fmt.Errorf(
			"use IDs from %d for pods: must be a multiple of 65536 and leave the first 65536 to the "+
				"node", cfg.IDs.First)
	}
	if end := uint64(cfg.IDs.First) + cfg.IDs.Count; end > 1<<32 {
		return nil, fmt.Errorf("use %d IDs from %d for pods: they end beyond the last ID there is", cfg.IDs.Count,
			cfg.IDs.First)
	}
	a := &Allocator{
		cfg:   cfg,
		slots: cfg.IDs.Count / uint64(cfg.PerPod),
		pods:  map[types.UID]uint64{},
		used:  map[uint64]types.UID{},
	}
	var lost []types.UID
	entries, err := os.ReadDir(cfg.PodsDir)
	if err != nil {
		return nil, fmt.Errorf("list user namespaces of pods: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue // not a pod directory
		}
		uid := types.UID(e.Name())
		if err := a.restore(uid); err != nil {
			lost = append(lost, uid)
			err = checkpoint.PutAside(a.path(uid), err)
			cfg.Log.Error("failed to restore user namespace of pod", "podUID", uid, "err", err)
			if cfg.OnCorrupt != nil {
				cfg.OnCorrupt(err)
			}
		}
	}
	for _, uid := range lost {
		a.recover(uid)
	}
	return a, nil
}

// recover reserves the IDs that the runtime reports for a pod whose record was set aside, so that they are not
// allocated to another pod while it runs.
func (a *Allocator) recover(uid types.UID) {
	if a.cfg.Recover == nil {
		return
	}
	r, ok := a.cfg.Recover(uid)
	if !ok {
		return // not running
	}
	slot, err := a.slotOf(r.First, uint32(r.Count))
	if err == nil {
		err = a.record(uid, slot)
	}
	if err != nil {
		a.cfg.Log.Error("failed to reserve user namespace reported by the runtime", "podUID", uid, "err", err)
		return
	}
	a.cfg.Log.Info("restored user namespace of pod from the runtime", "podUID", uid, "firstID", r.First)
}

// restore reads the record of a pod, if there is one.
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
		return errors.New("want one range for both users and groups")
	}
	slot, err := a.slotOf(r.UIDs[0].Host, r.UIDs[0].Length)
	if err != nil {
		return err
	}
	a.setLocked(uid, slot)
	a.next = max(a.next, slot+1)
	return nil
}

// slotOf returns the slot of a range that is not allocated.
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

func (a *Allocator) setLocked(uid types.UID, slot uint64) {
	a.pods[uid], a.used[slot] = slot, uid
}

func (a *Allocator) path(uid types.UID) string {
	return filepath.Join(a.cfg.PodsDir, string(uid), file)
}

// Allocate returns the pod's range. It allocates one if there is none, and records it in the pod's directory.
func (a *Allocator) Allocate(uid types.UID) (Range, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slot, ok := a.pods[uid]; ok {
		return a.at(slot), nil
	}
	slot, err := a.freeSlot()
	if err != nil {
		return Range{}, err
	}
	if err := a.record(uid, slot); err != nil {
		return Range{}, err
	}
	a.next = slot + 1
	return a.at(slot), nil
}

// record writes the pod's record and then marks the slot as used.
func (a *Allocator) record(uid types.UID, slot uint64) error {
	m := []mapping{{Host: a.at(slot).First, Length: a.cfg.PerPod}}
	b, err := json.Marshal(record{UIDs: m, GIDs: m})
	if err == nil {
		err = checkpoint.Put(a.path(uid), b, checkpoint.How{Mode: 0o644})
	}
	if err != nil {
		return fmt.Errorf("record user namespace: %w", err)
	}
	a.setLocked(uid, slot)
	return nil
}

func (a *Allocator) at(slot uint64) Range {
	return Range{First: a.cfg.IDs.First + uint32(slot)*a.cfg.PerPod, Count: uint64(a.cfg.PerPod)}
}

func (a *Allocator) freeSlot() (uint64, error) {
	for i := range a.slots {
		slot := (a.next + i) % a.slots
		if _, taken := a.used[slot]; !taken {
			return slot, nil
		}
	}
	return 0, pod.ShowAs("could not find an empty slot to allocate a user namespace",
		fmt.Errorf("allocate user namespace: all %d ranges of %d IDs are taken", a.slots, a.cfg.PerPod))
}

// Release releases the range of a terminated pod. Its record is removed first: the pod's directory may remain for long,
// and a later agent would restore the range from the record although another pod has it by then.
func (a *Allocator) Release(uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	slot, ok := a.pods[uid]
	if !ok {
		return nil
	}
	if err := os.Remove(a.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release user namespace: %w", err)
	}
	delete(a.used, slot)
	delete(a.pods, uid)
	return nil
}
