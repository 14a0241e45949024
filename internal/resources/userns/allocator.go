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
)

// Config holds what an Allocator is built from. Every field is required.
type Config struct {
	PodsDir string // where the pods' directories are
	IDs     Range  // of the node, for all pods together
	PerPod  uint32 // IDs of one pod; a multiple of 65536
	Log     *slog.Logger
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
	entries, err := os.ReadDir(cfg.PodsDir)
	if err != nil {
		return nil, fmt.Errorf("look for user namespaces of pods: %w", err)
	}
	for _, e := range entries {
		if err := a.restore(types.UID(e.Name())); err != nil {
			cfg.Log.Error("cannot take up the user namespace of a pod", "uid", e.Name(), "err", err)
		}
	}
	return a, nil
}

// restore takes up one pod's record, if there is one.
func (a *Allocator) restore(uid types.UID) error {
	b, err := os.ReadFile(a.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("read %s: %w", a.path(uid), err)
	}
	if len(r.UIDs) != 1 || len(r.GIDs) != 1 || r.UIDs[0] != r.GIDs[0] || r.UIDs[0].Container != 0 {
		return fmt.Errorf("read %s: want one range for users and groups alike", a.path(uid))
	}
	m := r.UIDs[0]
	if m.Length != a.cfg.PerPod || m.Host < a.cfg.IDs.First || (m.Host-a.cfg.IDs.First)%a.cfg.PerPod != 0 {
		return fmt.Errorf("read %s: %d IDs from %d are not a range of this node", a.path(uid), m.Length, m.Host)
	}
	slot := uint64(m.Host-a.cfg.IDs.First) / uint64(a.cfg.PerPod)
	if other, taken := a.used[slot]; taken {
		return fmt.Errorf("read %s: pod %s has the same IDs", a.path(uid), other)
	}
	a.take(uid, slot)
	return nil
}

func (a *Allocator) take(uid types.UID, slot uint64) {
	a.pods[uid], a.used[slot] = slot, uid
	a.next = max(a.next, slot+1)
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
	r := a.at(slot)
	m := []mapping{{Host: r.First, Length: a.cfg.PerPod}}
	b, err := json.Marshal(record{UIDs: m, GIDs: m})
	if err != nil {
		return Range{}, fmt.Errorf("record user namespace: %w", err)
	}
	if err := writeFile(a.path(uid), b); err != nil {
		return Range{}, fmt.Errorf("record user namespace: %w", err)
	}
	a.take(uid, slot)
	return r, nil
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
	return 0, fmt.Errorf("give the pod users of its own: all %d ranges of %d IDs are taken", a.slots, a.cfg.PerPod)
}

// Release gives the range of a pod that has ended back. Its record goes with
// the pod's directory.
func (a *Allocator) Release(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slot, ok := a.pods[uid]; ok {
		delete(a.used, slot)
		delete(a.pods, uid)
	}
}

// writeFile writes a file that is there whole or not at all.
func writeFile(path string, b []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
