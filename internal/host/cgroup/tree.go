package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// Config holds the configuration of a Tree.
type Config struct {
	Driver      Driver
	Root        string // cgroup root; empty or "/" for none. It must exist.
	Hierarchies Hierarchies
	Pod         PodOptions
	// Observe is called after each change with the operation ([Create], [Update] or [Destroy]) and its duration.
	// Optional.
	Observe func(operation string, took time.Duration)
}

// Tree manages the cgroups of pods.
type Tree struct {
	cfg   Config
	pods  name // the cgroup of all pods
	units units
}

// units manages slices for the systemd driver.
type units interface {
	// start starts the slice with these values, or updates them.
	start(n name, v Values) error
	// stop stops the slice. It does nothing if there is none.
	stop(n name) error
}

// New returns a Tree. It changes nothing.
func New(cfg Config) (*Tree, error) {
	if cfg.Driver != Cgroupfs && cfg.Driver != Systemd {
		return nil, fmt.Errorf("use cgroup driver %q: must be %s or %s", cfg.Driver, Cgroupfs, Systemd)
	}
	t := &Tree{cfg: cfg, pods: podsName(cfg.Root)}
	if t.cfg.Observe == nil {
		t.cfg.Observe = func(string, time.Duration) {}
	}
	if cfg.Driver == Systemd {
		t.units = systemdUnits{cfg.Hierarchies.V2()}
	}
	return t, nil
}

// WithExclusiveCPUs returns the same tree without a CPU quota for pods that own exclusive CPUs; see [PodOptions].
func (t *Tree) WithExclusiveCPUs(owns func(*v1.Pod) bool) *Tree {
	out := *t
	out.cfg.Pod.ExclusiveCPUs = owns
	return &out
}

// CheckRoot returns an error if the cgroup root does not exist or lacks a controller that limits pods. The agent does
// not create it.
func (t *Tree) CheckRoot() error {
	if len(t.pods) == 1 {
		return nil // no cgroup root
	}
	root := t.pods[:len(t.pods)-1].path(t.cfg.Driver)
	missing, err := t.cfg.Hierarchies.missingControllers(root)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
	}
	if err != nil {
		return fmt.Errorf("use cgroup root %s: %w", root, err)
	}
	return nil
}

// completeRoot creates the cgroup root in the v1 hierarchies that do not limit pods, where it may be missing.
func (t *Tree) completeRoot() error {
	if t.units != nil || t.cfg.Hierarchies.V2() {
		return nil
	}
	root := t.pods[:len(t.pods)-1]
	for i := range root {
		if _, err := t.cfg.Hierarchies.make(root[:i+1].path(Cgroupfs)); err != nil {
			return fmt.Errorf("complete cgroup root: %w", err)
		}
	}
	return nil
}

// EnsureRoot creates the cgroups above the pods, and enforces the values of node on all pods. UpdateQoS sets the CPU
// requests of classes later. The shares of a class with running pods are not changed meanwhile.
func (t *Tree) EnsureRoot(node Values) error {
	if err := t.CheckRoot(); err != nil {
		return err
	}
	if err := t.completeRoot(); err != nil {
		return err
	}
	if err := t.set(t.pods, node); err != nil {
		return err
	}
	least := classValues(t.cfg.Pod.PageSizes)
	for _, qos := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if err := t.ensure(t.pods.qosName(qos), least); err != nil {
			return err
		}
	}
	return nil
}

// LimitReserved sets the values of an existing cgroup for system daemons or Kubernetes daemons. The path is that in a
// hierarchy.
func (t *Tree) LimitReserved(path string, v Values) error {
	if !t.cfg.Hierarchies.exists(path) {
		return fmt.Errorf("limit cgroup %s: it does not exist in every hierarchy", path)
	}
	began := time.Now()
	defer func() { t.cfg.Observe(Update, time.Since(began)) }()
	if n, ok := nameOfSlice(path); ok && t.units != nil {
		if err := t.units.start(n, v); err != nil {
			return fmt.Errorf("limit slice %s: %w", path, err)
		}
		return nil
	}
	if err := t.cfg.Hierarchies.write(path, v); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", path, err)
	}
	return nil
}

// EnsurePod creates the pod's cgroup with its values if it is missing in a hierarchy. A complete one is not changed.
func (t *Tree) EnsurePod(p *v1.Pod) error {
	if err := t.ensure(t.podName(p), PodValues(p, t.cfg.Pod)); err != nil {
		return t.shown(p, err, "repair")
	}
	return nil
}

// MakePod creates the cgroup of a pod that is not running. It sets the values of an existing one, too, because the
// agent that created it may have crashed or failed before.
func (t *Tree) MakePod(p *v1.Pod) error {
	if err := t.set(t.podName(p), PodValues(p, t.cfg.Pod)); err != nil {
		return t.shown(p, err, "make")
	}
	return nil
}

// shown adds upstream's text with the cause to the error, for events and statuses.
func (t *Tree) shown(p *v1.Pod, err error, verb string) error {
	cause := err
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		cause = at
	}
	return pod.ShowAs(fmt.Sprintf("failed to create container for %v : %v", t.podName(p), cause),
		fmt.Errorf("%s cgroup of pod: %w", verb, err))
}

// AllPods returns the name of the cgroup of all pods, one element per level.
func (t *Tree) AllPods() []string { return slices.Clone(t.pods) }

// Parent returns the cgroup in which the runtime creates the pod's containers.
func (t *Tree) Parent(p *v1.Pod) string { return t.podName(p).path(t.cfg.Driver) }

// UpdateQoS sets the CPU shares of the burstable class to the sum of its pods' requests (see BurstableCPU).
func (t *Tree) UpdateQoS(milliCPU int64) error {
	if err := t.set(t.pods.qosName(v1.PodQOSBurstable), Values{CPUShares: shares(milliCPU)}); err != nil {
		return fmt.Errorf("update cgroup of burstable pods: %w", err)
	}
	return nil
}

// RaiseQoS is UpdateQoS if that increases the shares.
func (t *Tree) RaiseQoS(milliCPU int64) error {
	now, err := t.read(t.pods.qosName(v1.PodQOSBurstable).path(t.cfg.Driver))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read cgroup of burstable pods: %w", err)
	}
	if err == nil && now.Weight >= t.weightOf(shares(milliCPU)) {
		return nil
	}
	return t.UpdateQoS(milliCPU)
}

// RefreshQoS is UpdateQoS, and also sets the shares of the best-effort class to the minimum.
func (t *Tree) RefreshQoS(milliCPU int64) error {
	if err := t.UpdateQoS(milliCPU); err != nil {
		return err
	}
	if err := t.set(t.pods.qosName(v1.PodQOSBestEffort), Values{CPUShares: minShares}); err != nil {
		return fmt.Errorf("update cgroup of best-effort pods: %w", err)
	}
	return nil
}

// Gone reports whether the pod has no cgroup in any hierarchy.
func (t *Tree) Gone(uid types.UID) bool { return len(t.placesOf(uid)) == 0 }

// ReducePod sets the CPU shares of a terminated pod to the minimum, while its cgroup cannot be removed.
func (t *Tree) ReducePod(uid types.UID) error {
	for _, n := range t.placesOf(uid) {
		err := t.rewrite(n, Values{CPUShares: minShares})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reduce cgroup of pod %s: %w", uid, err)
		}
	}
	return nil
}

// List returns the pods with a cgroup in any hierarchy.
func (t *Tree) List() ([]types.UID, error) {
	seen := map[types.UID]bool{}
	for _, m := range t.cfg.Hierarchies.all() {
		for _, qos := range allQoS {
			entries, err := os.ReadDir(filepath.Join(m, t.pods.qosName(qos).path(t.cfg.Driver)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("list pod cgroups: %w", err)
			}
			for _, e := range entries {
				if uid, ok := uidOf(e.Name(), t.cfg.Driver); ok && e.IsDir() {
					seen[uid] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

var allQoS = []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

func (t *Tree) podName(p *v1.Pod) name { return t.pods.qosName(pod.QOS(p)).child(podName(p.UID)) }

// placesOf returns the names of existing cgroups of a pod whose QoS class is not known.
func (t *Tree) placesOf(uid types.UID) []name {
	var out []name
	for _, qos := range allQoS {
		n := t.pods.qosName(qos).child(podName(uid))
		for _, m := range t.cfg.Hierarchies.all() {
			if _, err := os.Stat(filepath.Join(m, n.path(t.cfg.Driver))); err == nil {
				out = append(out, n)
				break
			}
		}
	}
	return out
}

// ensure creates n with these values if it is missing in a hierarchy.
func (t *Tree) ensure(n name, v Values) error {
	return t.put(n, v, false)
}

// set creates n if needed and sets these values.
func (t *Tree) set(n name, v Values) error { return t.put(n, v, true) }

// rewrite sets these values of an existing cgroup.
func (t *Tree) rewrite(n name, v Values) error {
	if t.units != nil {
		return t.set(n, v)
	}
	began := time.Now()
	defer func() { t.cfg.Observe(Update, time.Since(began)) }()
	return t.cfg.Hierarchies.write(n.path(Cgroupfs), v)
}

// put creates n if needed. It sets the values if n was created, or if over is true.
func (t *Tree) put(n name, v Values, over bool) error {
	began := time.Now()
	created := false
	if t.units != nil {
		created = !t.cfg.Hierarchies.exists(n.path(Systemd))
	} else {
		var err error
		if created, err = t.cfg.Hierarchies.make(n.path(Cgroupfs)); err != nil {
			return err
		}
	}
	operation := Update
	switch {
	case created:
		operation = Create
	case !over:
		return nil
	}
	defer func() { t.cfg.Observe(operation, time.Since(began)) }()
	if t.units == nil {
		return t.cfg.Hierarchies.write(n.path(Cgroupfs), v)
	}
	if err := t.units.start(n, v); err != nil {
		return fmt.Errorf("set slice %s: %w", n.path(Systemd), err)
	}
	return nil
}
