package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
)

// prepare makes one attempt to prepare all claims of a pod.
func (s *Manager) prepare(ctx context.Context, p *v1.Pod) error {
	list, err := podClaims(p)
	if err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, n := range list {
		wg.Go(func() {
			errs[i] = panics.Try(s.cfg.Log, "claims", func() error { return s.prepareOne(ctx, p, n) })
		})
	}
	wg.Wait()
	errs = append(errs, s.save())
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		// Events contain the first error only, as upstream's, which stops at it.
		err := fmt.Errorf("prepare dynamic resources: %w", errors.Join(errs...))
		return pod.ShowAs("prepare dynamic resources: "+shown(errs[i]), err)
	}
	return nil
}

// shown returns the text of an error for events.
func shown(err error) string {
	if text, ok := pod.ShownText(err); ok {
		return text
	}
	return err.Error()
}

func (s *Manager) prepareOne(ctx context.Context, p *v1.Pod, n podClaim) error {
	if s.isPrepared(p, n.name) {
		return nil // possibly restored from the checkpoint
	}
	if s.cfg.API == nil {
		return fmt.Errorf("fetch ResourceClaim %s: no API server configured", n.name)
	}
	obj, err := s.cfg.API.Claim(ctx, p.Namespace, n.name)
	if err != nil {
		return fmt.Errorf("fetch ResourceClaim %s: %w", n.name, err)
	}
	if err := checkUse(p, n, obj); err != nil {
		return err
	}
	drivers := driversOf(obj)
	for _, name := range drivers {
		if _, err := s.cfg.Drivers.find(name); err != nil {
			return err // a claim is not recorded before its driver could unprepare it
		}
	}
	c, leave, err := s.lockClaim(ctx, ClaimRef{obj.Namespace, obj.Name, string(obj.UID)})
	if err != nil {
		return err
	}
	defer leave()
	missing := s.addUser(c, p.UID, obj, drivers)
	if err := s.save(); err != nil {
		return err
	}
	var errs []error
	for _, name := range missing {
		errs = append(errs, s.prepareDriver(ctx, c, name))
	}
	return errors.Join(errs...)
}

// isPrepared reports whether the pod uses a claim with the name and it is prepared.
func (s *Manager) isPrepared(p *v1.Pod, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claimLocked(p, name)
	return c != nil && c.preparedLocked()
}

// claimLocked returns the claim with the name that the pod uses, or nil.
func (s *Manager) claimLocked(p *v1.Pod, name string) *claim {
	for _, c := range s.claims {
		if c.Name == name && c.Namespace == p.Namespace && c.users[p.UID] {
			return c
		}
	}
	return nil
}

func (c *claim) preparedLocked() bool {
	for _, d := range c.drivers {
		if !d.prepared {
			return false
		}
	}
	return true
}

// lockClaim locks a claim, and creates it if there is none. leave unlocks it.
func (s *Manager) lockClaim(ctx context.Context, ref ClaimRef) (c *claim, leave func(), err error) {
	for {
		s.mu.Lock()
		c := s.claims[types.UID(ref.UID)]
		if c == nil {
			for _, o := range s.claims {
				if o.Name == ref.Name && o.Namespace == ref.Namespace {
					s.mu.Unlock()
					return nil, nil,
						fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous "+
							"pod force-deleted?!)",
							ref.Name, o.UID)
				}
			}
			c = &claim{
				ClaimRef: ref,
				turn:     make(chan struct{}, 1),
				users:    map[types.UID]bool{},
				drivers:  map[string]*driverState{},
			}
			s.claims[types.UID(ref.UID)] = c
			s.triggerReconcile()
		}
		s.mu.Unlock()
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("wait for ResourceClaim %s: %w", ref, ctx.Err())
		}
		s.mu.Lock()
		same := s.claims[types.UID(ref.UID)] == c
		s.mu.Unlock()
		if same {
			return c, func() { s.unlockClaim(c) }, nil
		}
		<-c.turn // it was removed in the meantime
	}
}

// unlockClaim unlocks a claim. A claim without users is removed.
func (s *Manager) unlockClaim(c *claim) {
	s.mu.Lock()
	if len(c.users) == 0 {
		delete(s.claims, types.UID(c.UID))
		s.unsaved = true
	}
	s.mu.Unlock()
	<-c.turn
}

// addUser records that the pod uses the claim. It returns the drivers that have yet to prepare it.
func (s *Manager) addUser(c *claim, uid types.UID, obj *Object, drivers []string) (missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.users[uid] {
		c.users[uid], s.unsaved = true, true
	}
	for _, name := range drivers {
		if c.drivers[name] == nil {
			c.drivers[name], s.unsaved = &driverState{}, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.drivers)) {
		if !c.drivers[name].prepared {
			missing = append(missing, name)
		}
	}
	return missing
}

// prepareDriver calls a driver to prepare its part of a claim.
func (s *Manager) prepareDriver(ctx context.Context, c *claim, driver string) error {
	s.mu.Lock()
	c.drivers[driver].asked = true
	s.mu.Unlock()
	devices, err := s.cfg.Drivers.prepare(ctx, driver, c.ClaimRef)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := c.drivers[driver]
	d.prepared, d.devices, s.unsaved = true, devicesOf(devices), true
	return nil
}

// devicesOf converts the answer of a driver.
func devicesOf(list []*drav1.Device) []Device {
	out := make([]Device, 0, len(list))
	for _, d := range list {
		out = append(out, Device{
			Pool:     d.GetPoolName(),
			Name:     d.GetDeviceName(),
			Share:    d.GetShareId(),
			Requests: d.GetRequestNames(),
			CDI:      d.GetCdiDeviceIds(),
		})
	}
	return out
}
