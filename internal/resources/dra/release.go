package dra

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/panics"
)

// unprepare makes one attempt to unprepare the claims that only this pod uses.
func (s *Manager) unprepare(ctx context.Context, uid types.UID) error {
	s.mu.Lock()
	var held []ClaimRef
	for _, c := range s.claims {
		if c.users[uid] {
			held = append(held, c.ClaimRef)
		}
	}
	s.mu.Unlock()
	errs := make([]error, len(held))
	var wg sync.WaitGroup
	for i, ref := range held {
		wg.Go(func() {
			errs[i] = panics.Try(s.cfg.Log, "claims", func() error { return s.unprepareOne(ctx, uid, ref) })
		})
	}
	wg.Wait()
	return errors.Join(append(errs, s.save())...)
}

func (s *Manager) unprepareOne(ctx context.Context, uid types.UID, ref ClaimRef) error {
	c, leave, err := s.lockClaim(ctx, ref)
	if err != nil {
		return err
	}
	defer leave()
	s.mu.Lock()
	drivers := slices.Sorted(maps.Keys(c.drivers))
	if len(c.users) > 1 || !c.users[uid] {
		drivers = nil // other pods use it
	}
	s.mu.Unlock()
	var errs []error
	for _, name := range drivers {
		errs = append(errs, s.unprepareDriver(ctx, c, name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.users, uid)
	s.unsaved = true
	return nil
}

// unprepareDriver calls a driver to unprepare its part of a claim, if the driver was ever called for it.
func (s *Manager) unprepareDriver(ctx context.Context, c *claim, driver string) error {
	s.mu.Lock()
	asked := c.drivers[driver].asked
	s.mu.Unlock()
	if asked {
		if err := s.cfg.Drivers.unprepare(ctx, driver, c.ClaimRef); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.drivers, driver)
	s.unsaved = true
	return nil
}
