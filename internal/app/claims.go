package app

import (
	"context"
	"fmt"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"keelson/internal/node/apiclient"
	"keelson/internal/resources/dra"
)

// buildClaims builds who has drivers prepare what pods claim.
func (a *agent) buildClaims() {
	root := a.cfg.Flags.RootDir
	cfg := dra.DriversConfig{OnDriver: func(name string) { a.claims.DriverCame(name) }, Log: a.log}
	if s := a.links.Sockets; s != nil {
		cfg.Dial = s.Dial
	}
	if a.cfg.Gates.Enabled("ResourceHealthStatus") {
		a.claimHealth = dra.NewHealth(dra.HealthConfig{Path: filepath.Join(root, dra.HealthFile),
			OnNews: func(driver string) { a.claims.DriverTold(driver) }, Log: a.log})
		if err := a.claimHealth.Load(); err != nil {
			a.log.Warn("cannot use what is noted of the health of claimed devices", "err", err)
			a.unusable(err)
		}
		cfg.Health = a.claimHealth
	}
	store := dra.Config{Path: filepath.Join(root, dra.StateFile), Events: a.events, OnChange: a.wake, Log: a.log}
	if a.api != nil {
		cfg.Offers = resourceSlices{a.api, a.cfg.NodeName}
		store.API = resourceClaims{a.api}
	}
	a.claimDrivers = dra.NewDrivers(cfg)
	store.Drivers, store.Health = a.claimDrivers, a.claimHealth
	a.claims = dra.New(store)
	if err := a.claims.Load(); err != nil {
		a.log.Warn("cannot use what is noted of claims", "err", err)
		a.unusable(err)
	}
	a.metrics.MustRegister(a.claims)
}

// resourceClaims are claims at the API server.
type resourceClaims struct{ api *apiclient.Client }

func (c resourceClaims) Claim(ctx context.Context, namespace, name string) (*dra.Object, error) {
	claim, err := c.api.ResourceClaim(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	out := &dra.Object{ObjectMeta: claim.ObjectMeta}
	for _, r := range claim.Status.ReservedFor {
		out.ReservedFor = append(out.ReservedFor, r.UID)
	}
	if chosen := claim.Status.Allocation; chosen != nil {
		out.Allocated = true
		for _, r := range chosen.Devices.Results {
			out.Drivers = append(out.Drivers, r.Driver)
		}
	}
	return out, nil
}

// resourceSlices are what drivers on this node offer to the cluster.
type resourceSlices struct {
	api  *apiclient.Client
	node string
}

// Wipe removes what a driver offers; empty: what all do.
func (s resourceSlices) Wipe(ctx context.Context, driver string) error {
	of := fields.Set{apiclient.SliceNode: s.node}
	if driver != "" {
		of[apiclient.SliceDriver] = driver
	}
	err := s.api.DeleteResourceSlices(ctx, of)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ResourceSlices: %w", err)
	}
	return nil
}
