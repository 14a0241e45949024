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

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
)

// prepare makes one attempt at preparing all claims of a pod.
func (s *Store) prepare(ctx context.Context, p *v1.Pod) error {
	list, err := needs(p)
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
		// Users are shown the first, as by upstream, which stops there.
		err := fmt.Errorf("prepare dynamic resources: %w", errors.Join(errs...))
		return pod.ShowAs("prepare dynamic resources: "+shown(errs[i]), err)
	}
	return nil
}

// shown is what users are shown of an error.
func shown(err error) string {
	if text, ok := pod.ShownText(err); ok {
		return text
	}
	return err.Error()
}

func (s *Store) prepareOne(ctx context.Context, p *v1.Pod, n need) error {
	if s.has(p, n.name) {
		return nil // as an earlier agent noted, perhaps
	}
	if s.cfg.API == nil {
		return fmt.Errorf("fetch ResourceClaim %s: no API server configured", n.name)
	}
	obj, err := s.cfg.API.Claim(ctx, p.Namespace, n.name)
	if err != nil {
		return fmt.Errorf("fetch ResourceClaim %s: %w", n.name, err)
	}
	if err := mayUse(p, n, obj); err != nil {
		return err
	}
	drivers := driversOf(obj)
	for _, name := range drivers {
		if _, err := s.cfg.Drivers.find(name); err != nil {
			return err // nothing is noted of what nobody can take back
		}
	}
	c, leave, err := s.enter(ctx, ClaimRef{obj.Namespace, obj.Name, string(obj.UID)})
	if err != nil {
		return err
	}
	defer leave()
	missing := s.note(c, p.UID, obj, drivers)
	if err := s.save(); err != nil {
		return err
	}
	var errs []error
	for _, name := range missing {
		errs = append(errs, s.ask(ctx, c, name))
	}
	return errors.Join(errs...)
}

// has reports whether the pod has a claim of the name, and it is prepared.
func (s *Store) has(p *v1.Pod, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.heldLocked(p, name)
	return c != nil && c.preparedLocked()
}

// heldLocked is the claim of the name that the pod has; nil: it has none.
func (s *Store) heldLocked(p *v1.Pod, name string) *claim {
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

// enter waits until nobody else works on a claim, and makes it if there is none.
// leave is to be called when the work is done.
func (s *Store) enter(ctx context.Context, ref ClaimRef) (c *claim, leave func(), err error) {
	for {
		s.mu.Lock()
		c := s.claims[types.UID(ref.UID)]
		if c == nil {
			for _, o := range s.claims {
				if o.Name == ref.Name && o.Namespace == ref.Namespace {
					s.mu.Unlock()
					return nil, nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)",
						ref.Name, o.UID)
				}
			}
			c = &claim{ClaimRef: ref, turn: make(chan struct{}, 1), users: map[types.UID]bool{}, drivers: map[string]*portion{}}
			s.claims[types.UID(ref.UID)] = c
			s.look()
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
			return c, func() { s.leave(c) }, nil
		}
		<-c.turn // it was taken back meanwhile
	}
}

// leave lets others work on a claim. One that nobody has is forgotten.
func (s *Store) leave(c *claim) {
	s.mu.Lock()
	if len(c.users) == 0 {
		delete(s.claims, types.UID(c.UID))
		s.unsaved = true
	}
	s.mu.Unlock()
	<-c.turn
}

// note gives the pod the claim, and tells which drivers have yet to prepare it.
func (s *Store) note(c *claim, uid types.UID, obj *Object, drivers []string) (missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.users[uid] {
		c.users[uid], s.unsaved = true, true
	}
	for _, name := range drivers {
		if c.drivers[name] == nil {
			c.drivers[name], s.unsaved = &portion{}, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.drivers)) {
		if !c.drivers[name].prepared {
			missing = append(missing, name)
		}
	}
	return missing
}

// ask has a driver prepare its portion of a claim.
func (s *Store) ask(ctx context.Context, c *claim, driver string) error {
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

// devicesOf is what a driver told.
func devicesOf(list []*drav1.Device) []Device {
	out := make([]Device, 0, len(list))
	for _, d := range list {
		out = append(out, Device{Pool: d.GetPoolName(), Name: d.GetDeviceName(), Share: d.GetShareId(), Requests: d.GetRequestNames(), CDI: d.GetCdiDeviceIds()})
	}
	return out
}
