package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"keelson/internal/storage/volume"
)

// NodeInfo is the response to NodeGetInfo.
type NodeInfo struct {
	Driver   string
	NodeID   string
	Max      int64             // maximum number of volumes; zero for no limit
	Topology map[string]string // nil for a driver without topology
}

// nodeInfoManager publishes the node's drivers at the API server.
type nodeInfoManager interface {
	InstallDriver(ctx context.Context, info NodeInfo) error
	UninstallDriver(ctx context.Context, driver string) error
}

// Drivers are the registered drivers. It is the handler for plugins of type CSIPlugin.
type Drivers struct {
	manager nodeInfoManager // nil: standalone
	observe Observer
	log     *slog.Logger

	mu         sync.Mutex
	byName     map[string]*driver
	onChange   func()            // nil: not called
	onRegister func(name string) // likewise
}

// Observer is called after every call to a driver. Migrated calls are for volumes of a former
// in-tree plugin.
type Observer func(driver, method, code string, migrated bool, took time.Duration)

// driver is a registered driver.
type driver struct {
	name     string
	endpoint string
	version  *version.Version
	before   *driver // the previous driver of the name during registration; guarded by Drivers.mu

	mu   sync.Mutex
	caps map[csiv1.NodeServiceCapability_RPC_Type]bool // nil until known
}

// NewDrivers makes an empty table. manager is nil without an API server. observe may be nil.
func NewDrivers(manager nodeInfoManager, observe Observer, log *slog.Logger) *Drivers {
	if observe == nil {
		observe = func(string, string, string, bool, time.Duration) {}
	}
	return &Drivers{manager: manager, observe: observe, log: log, byName: map[string]*driver{}}
}

// Validate checks a driver before its registration.
func (t *Drivers) Validate(name, endpoint string, versions []string) error {
	_, err := t.checkVersions(name, versions)
	return err
}

func (t *Drivers) checkVersions(name string, versions []string) (*version.Version, error) {
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 || len(name) > 63 {
		return nil, fmt.Errorf("plugin name %q is not valid as the name of a CSI driver", name)
	}
	highest, err := highestSupported(versions)
	if err != nil {
		return nil, fmt.Errorf("validation of CSI driver %s with versions %v failed: %w", name, versions, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.byName[name]; old != nil && highest.LessThan(old.version) {
		return nil, fmt.Errorf(
			"another CSI driver with the same name %s is already registered with a higher supported version: %s", name,
			old.version)
	}
	return highest, nil
}

// highestSupported returns the highest of the versions that are supported: 1.x.
func highestSupported(versions []string) (*version.Version, error) {
	if len(versions) == 0 {
		return nil, errors.New("the driver reports no supported versions")
	}
	var highest *version.Version
	var errs []error
	for _, text := range versions {
		v, err := version.ParseGeneric(text)
		switch {
		case err != nil:
			errs = append(errs, err)
		case v.Major() > 1: // a later major version
		case highest == nil || highest.LessThan(v):
			highest = v
		}
	}
	switch {
	case highest == nil:
		return nil, errors.Join(append([]error{fmt.Errorf("none of the versions %q is supported", versions)},
			errs...)...)
	case highest.Major() != 1:
		return nil, fmt.Errorf("the highest supported version %q is below 1.0", highest)
	}
	return highest, nil
}

// Register adds a driver to the table and publishes its node info. The latest registration of a
// name wins.
func (t *Drivers) Register(ctx context.Context, name, endpoint string, versions []string) error {
	highest, err := t.checkVersions(name, versions)
	if err != nil {
		return err
	}
	d := &driver{name: name, endpoint: endpoint, version: highest}
	t.mu.Lock()
	d.before = t.byName[name]
	t.byName[name] = d
	t.mu.Unlock()
	if err := t.introduce(ctx, d); err != nil {
		t.mu.Lock()
		switch {
		case t.byName[name] != d:
		case d.before != nil: // a failed registration does not replace the previous driver
			t.byName[name] = d.before
		default:
			delete(t.byName, name)
		}
		t.mu.Unlock()
		return err
	}
	t.mu.Lock()
	d.before = nil
	t.mu.Unlock()
	t.notifyChanged()
	t.notifyRegistered(name)
	t.log.Info("registered CSI driver", "driver", name, "endpoint", endpoint, "version", highest)
	return nil
}

func (t *Drivers) introduce(ctx context.Context, d *driver) error {
	info, err := t.nodeInfo(ctx, d)
	if err != nil {
		return err
	}
	if t.manager == nil {
		return nil
	}
	if err := t.manager.InstallDriver(ctx, info); err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	return nil
}

// OnChange sets a function to call when drivers register or deregister. f must not block.
func (t *Drivers) OnChange(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onChange = f
}

func (t *Drivers) notifyChanged() {
	t.mu.Lock()
	f := t.onChange
	t.mu.Unlock()
	if f != nil {
		f()
	}
}

// OnRegister sets a function to call with each driver that has registered. f must not block.
func (t *Drivers) OnRegister(f func(name string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onRegister = f
}

func (t *Drivers) notifyRegistered(name string) {
	t.mu.Lock()
	f := t.onRegister
	t.mu.Unlock()
	if f != nil {
		f(name)
	}
}

// Refresh calls NodeGetInfo again and publishes the result.
func (t *Drivers) Refresh(ctx context.Context, name string) error {
	d, err := t.find(name)
	if err != nil {
		return err
	}
	return t.introduce(ctx, d)
}

// Deregister removes a driver from the table, unless another endpoint has registered the name
// since.
func (t *Drivers) Deregister(ctx context.Context, name, endpoint string) error {
	t.mu.Lock()
	if d := t.byName[name]; d == nil || d.endpoint != endpoint {
		if d != nil && d.before != nil && d.before.endpoint == endpoint {
			d.before = nil // it has deregistered meanwhile
		}
		t.mu.Unlock()
		return nil
	}
	delete(t.byName, name)
	t.mu.Unlock()
	t.notifyChanged()
	t.log.Info("deregistered CSI driver", "driver", name, "endpoint", endpoint)
	if t.manager == nil {
		return nil
	}
	return t.manager.UninstallDriver(ctx, name)
}

// find returns the driver of that name.
func (t *Drivers) find(name string) (*driver, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.byName[name]; d != nil {
		return d, nil
	}
	return nil, &volume.NoDriver{Name: name}
}

// Names returns the names of the registered drivers, sorted.
func (t *Drivers) Names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.byName))
	for name := range t.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
