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

// Config holds what a Tree is built from.
type Config struct {
	Driver      Driver
	Root        string // prefix; empty or "/" for none. It must exist.
	Hierarchies Hierarchies
	Pod         PodOptions
	// Observe, if not nil, is told of each change to the tree when it is done: what
	// was done ([Create], [Update] or [Destroy]) and how long it took.
	Observe func(operation string, took time.Duration)
}

// Tree is the pods' part of the control group tree.
type Tree struct {
	cfg   Config
	pods  name // where all pods live
	units units
}

// units makes and removes the slices of the systemd driver.
type units interface {
	// start makes the slice with these values, or changes those of a slice that
	// is there.
	start(n name, v Values) error
	// stop ends the slice; one that is not there is no error.
	stop(n name) error
}

// New makes a Tree. It touches nothing.
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

// CheckRoot returns an error if the cgroup root is not there, or lacks a controller that
// pods are limited by: somebody else makes it.
func (t *Tree) CheckRoot() error {
	if len(t.pods) == 1 {
		return nil // the root of the machine
	}
	root := t.pods[:len(t.pods)-1].path(t.cfg.Driver)
	missing, err := t.cfg.Hierarchies.lacks(root)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
	}
	if err != nil {
		return fmt.Errorf("use cgroup root %s: %w", root, err)
	}
	return nil
}

// completeRoot makes the root in the v1 hierarchies that do not limit pods, where those
// who made it may have left it out.
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

// EnsureRoot makes the cgroups above the pods and gives them what the node has:
// the values of node are enforced on all pods together. What pods request is told
// later by UpdateQoS; a running node's shares are not touched meanwhile.
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

// LimitReserved gives a cgroup that somebody else has made these values: that of the
// system's programs, or of Kubernetes'. The path is as a hierarchy shows it.
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

// EnsurePod makes the pod's cgroup with its values, where somebody has removed it or
// part of it; one that is whole is left as it is.
func (t *Tree) EnsurePod(p *v1.Pod) error {
	if err := t.ensure(t.podName(p), PodValues(p, t.cfg.Pod)); err != nil {
		return t.shown(p, err, "mend")
	}
	return nil
}

// MakePod makes the cgroup of a pod that nothing runs of, with its values. One that is
// there is given them, too: who made it may have died, or failed, before it had them.
func (t *Tree) MakePod(p *v1.Pod) error {
	if err := t.set(t.podName(p), PodValues(p, t.cfg.Pod)); err != nil {
		return t.shown(p, err, "make")
	}
	return nil
}

// shown adds upstream's text to the error, with only the cause, for events and statuses.
func (t *Tree) shown(p *v1.Pod, err error, verb string) error {
	cause := err
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		cause = at
	}
	return pod.ShowAs(fmt.Sprintf("failed to create container for %v : %v", t.podName(p), cause),
		fmt.Errorf("%s cgroup of pod: %w", verb, err))
}

// AllPods names the cgroup of all pods, one element for each level.
func (t *Tree) AllPods() []string { return slices.Clone(t.pods) }

// Parent is the cgroup in which the runtime puts the pod's containers.
func (t *Tree) Parent(p *v1.Pod) string { return t.podName(p).path(t.cfg.Driver) }

// UpdateQoS gives the burstable pods together the CPU that they request together
// (see BurstableCPU).
func (t *Tree) UpdateQoS(milliCPU int64) error {
	if err := t.set(t.pods.qosName(v1.PodQOSBurstable), Values{CPUShares: shares(milliCPU)}); err != nil {
		return fmt.Errorf("update cgroup of burstable pods: %w", err)
	}
	return nil
}

// RaiseQoS is UpdateQoS where that is more than the burstable pods have.
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

// RefreshQoS is UpdateQoS, and gives the best-effort pods together the least there is
// once more.
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

// ReducePod leaves a pod that is over with the least CPU, for as long as its
// cgroup cannot go.
func (t *Tree) ReducePod(uid types.UID) error {
	for _, n := range t.placesOf(uid) {
		err := t.set(n, Values{CPUShares: minShares})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reduce cgroup of pod %s: %w", uid, err)
		}
	}
	return nil
}

// List names the pods that have a cgroup in any hierarchy, whole or not.
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

// placesOf are the places where the pod's cgroup can be; its class is not known
// any more.
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

// ensure makes n with these values, or leaves it as it is if it is whole.
func (t *Tree) ensure(n name, v Values) error {
	return t.put(n, v, false)
}

// set makes n if needed and gives it these values.
func (t *Tree) set(n name, v Values) error { return t.put(n, v, true) }

// put makes n if needed. It gives it these values if it was made, or over those that it
// has.
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
