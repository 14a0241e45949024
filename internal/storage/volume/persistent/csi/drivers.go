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

// NodeInfo is what a driver says of the node.
type NodeInfo struct {
	Driver   string
	NodeID   string
	Max      int64             // volumes; zero for no limit
	Topology map[string]string // nil for a driver without
}

// shower shows the API server which drivers the node has.
type shower interface {
	Show(ctx context.Context, info NodeInfo) error
	Hide(ctx context.Context, driver string) error
}

// Drivers are the drivers that registered. It is the handler for plugins of the
// type CSIPlugin.
type Drivers struct {
	show    shower // nil: standalone
	observe Observer
	log     *slog.Logger

	mu      sync.Mutex
	byName  map[string]*driver
	changed func()            // nil: not called
	came    func(name string) // likewise
}

// Observer is called after every call to a driver. Migrated calls are for volumes of a former in-tree plugin.
type Observer func(driver, method, code string, migrated bool, took time.Duration)

// driver is one that registered.
type driver struct {
	name     string
	endpoint string
	version  *version.Version
	before   *driver // who has the name while this one is introduced; guarded by Drivers.mu

	mu   sync.Mutex
	caps map[csiv1.NodeServiceCapability_RPC_Type]bool // nil before they are known
}

// NewDrivers makes an empty table. show may be nil on a node without API server,
// and observe too.
func NewDrivers(show shower, observe Observer, log *slog.Logger) *Drivers {
	if observe == nil {
		observe = func(string, string, string, bool, time.Duration) {}
	}
	return &Drivers{show: show, observe: observe, log: log, byName: map[string]*driver{}}
}

// Validate judges a driver that wants to register.
func (t *Drivers) Validate(name, endpoint string, versions []string) error {
	_, err := t.judge(name, versions)
	return err
}

func (t *Drivers) judge(name string, versions []string) (*version.Version, error) {
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
		return nil, fmt.Errorf("another CSI driver with the same name %s is already registered with a higher supported version: %s", name, old.version)
	}
	return highest, nil
}

// highestSupported is the highest of the versions that the node can speak: 1.x.
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
		case v.Major() > 1: // of the future
		case highest == nil || highest.LessThan(v):
			highest = v
		}
	}
	switch {
	case highest == nil:
		return nil, errors.Join(append([]error{fmt.Errorf("none of the versions %q is supported", versions)}, errs...)...)
	case highest.Major() != 1:
		return nil, fmt.Errorf("the highest supported version %q is below 1.0", highest)
	}
	return highest, nil
}

// Register takes a driver into the table, and shows it to the API server by what
// it says of the node. The latest registration of a name wins.
func (t *Drivers) Register(ctx context.Context, name, endpoint string, versions []string) error {
	highest, err := t.judge(name, versions)
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
		case d.before != nil: // who only claims the name does not drive out who has it
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
	t.tellChanged()
	t.tellCame(name)
	t.log.Info("CSI driver registered", "driver", name, "endpoint", endpoint, "version", highest)
	return nil
}

func (t *Drivers) introduce(ctx context.Context, d *driver) error {
	info, err := t.nodeInfo(ctx, d)
	if err != nil {
		return err
	}
	if t.show == nil {
		return nil
	}
	if err := t.show.Show(ctx, info); err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	return nil
}

// OnChange has f called whenever drivers came or went. f must not block.
func (t *Drivers) OnChange(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = f
}

func (t *Drivers) tellChanged() {
	t.mu.Lock()
	f := t.changed
	t.mu.Unlock()
	if f != nil {
		f()
	}
}

// OnRegister has f called with each driver that has registered. f must not block.
func (t *Drivers) OnRegister(f func(name string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.came = f
}

func (t *Drivers) tellCame(name string) {
	t.mu.Lock()
	f := t.came
	t.mu.Unlock()
	if f != nil {
		f(name)
	}
}

// Refresh asks a driver again what it says of the node, and shows it.
func (t *Drivers) Refresh(ctx context.Context, name string) error {
	d, err := t.find(name)
	if err != nil {
		return err
	}
	return t.introduce(ctx, d)
}

// Deregister takes a driver out of the table, unless another endpoint has taken
// its name by now.
func (t *Drivers) Deregister(ctx context.Context, name, endpoint string) error {
	t.mu.Lock()
	if d := t.byName[name]; d == nil || d.endpoint != endpoint {
		if d != nil && d.before != nil && d.before.endpoint == endpoint {
			d.before = nil // it has gone meanwhile
		}
		t.mu.Unlock()
		return nil
	}
	delete(t.byName, name)
	t.mu.Unlock()
	t.tellChanged()
	t.log.Info("CSI driver left", "driver", name, "endpoint", endpoint)
	if t.show == nil {
		return nil
	}
	return t.show.Hide(ctx, name)
}

// find is the driver of a name.
func (t *Drivers) find(name string) (*driver, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.byName[name]; d != nil {
		return d, nil
	}
	return nil, &volume.NoDriver{Name: name}
}

// Names are the drivers of the table, in order.
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
