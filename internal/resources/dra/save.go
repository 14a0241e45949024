package dra

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
)

// Load restores the checkpoint. It must be called before any other method. A checkpoint that cannot be used is set
// aside; the error contains its new name.
func (s *Manager) Load() error {
	if err := checkpoint.Sweep(s.cfg.Path); err != nil {
		return err
	}
	content, err := checkpoint.Read(s.cfg.Path)
	if err == nil && content == nil {
		return nil
	}
	var list []claimRecord
	if err == nil {
		list, err = decodeClaims(content)
	}
	var claims map[types.UID]*claim
	if err == nil {
		claims, err = claimsOf(list)
	}
	if err != nil {
		return checkpoint.PutAside(s.cfg.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = claims
	return nil
}

func claimsOf(list []claimRecord) (map[types.UID]*claim, error) {
	out := map[types.UID]*claim{}
	for _, e := range list {
		if e.ClaimUID == "" || e.ClaimName == "" || e.Namespace == "" {
			return nil, fmt.Errorf("decode claims: an entry is incomplete: %+v", e)
		}
		c := &claim{
			ClaimRef: ClaimRef{e.Namespace, e.ClaimName, e.ClaimUID},
			turn:     make(chan struct{}, 1),
			users:    map[types.UID]bool{},
			drivers:  map[string]*driverState{},
		}
		for uid := range e.PodUIDs {
			c.users[types.UID(uid)] = true
		}
		for name, d := range e.DriverState {
			// The driver may have been called without an answer.
			p := &driverState{asked: true, prepared: d.Devices != nil}
			for _, dev := range d.Devices {
				one := Device{
					Pool:     dev.PoolName,
					Name:     dev.DeviceName,
					Requests: dev.RequestNames,
					CDI:      dev.CDIDeviceIDs,
				}
				if dev.ShareID != nil {
					one.Share = *dev.ShareID
				}
				p.devices = append(p.devices, one)
			}
			c.drivers[name] = p
		}
		out[types.UID(e.ClaimUID)] = c
	}
	return out, nil
}

// save writes the checkpoint if it is out of date.
func (s *Manager) save() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	if !s.unsaved {
		s.mu.Unlock()
		return nil
	}
	s.unsaved = false
	list := s.recordLocked()
	s.mu.Unlock()
	text, err := encodeClaims(list)
	if err == nil {
		// Without the record the claim would stay prepared for ever after a power failure.
		err = checkpoint.Put(s.cfg.Path, text, checkpoint.How{Sync: true})
	}
	if err != nil {
		s.mu.Lock()
		s.unsaved = true
		s.mu.Unlock()
		return fmt.Errorf("write checkpoint of claims: %w", err)
	}
	return nil
}

func (s *Manager) recordLocked() []claimRecord {
	out := []claimRecord{}
	for _, c := range s.claims {
		if len(c.users) == 0 {
			continue // about to be removed or to be recorded
		}
		e := claimRecord{
			ClaimUID:    c.UID,
			ClaimName:   c.Name,
			Namespace:   c.Namespace,
			PodUIDs:     map[string]struct{}{},
			DriverState: map[string]driverRecord{},
		}
		for uid := range c.users {
			e.PodUIDs[string(uid)] = struct{}{}
		}
		for _, name := range slices.Sorted(maps.Keys(c.drivers)) {
			e.DriverState[name] = c.drivers[name].record()
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b claimRecord) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ClaimName, b.ClaimName),
			cmp.Compare(a.ClaimUID, b.ClaimUID))
	})
	return out
}

func (p *driverState) record() driverRecord {
	if !p.prepared {
		return driverRecord{}
	}
	list := make([]deviceRecord, 0, len(p.devices))
	for _, d := range p.devices {
		one := deviceRecord{PoolName: d.Pool, DeviceName: d.Name, RequestNames: d.Requests, CDIDeviceIDs: d.CDI}
		if d.Share != "" {
			one.ShareID = &d.Share
		}
		list = append(list, one)
	}
	return driverRecord{Devices: list}
}
