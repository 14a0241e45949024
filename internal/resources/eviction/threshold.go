package eviction

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is a quantity, or a share of the capacity.
type Amount struct {
	Quantity resource.Quantity // used when Percent is 0
	Percent  float32           // as a fraction
}

// Of is the amount in units of the capacity. The fraction has the precision with
// which it was always computed, so that allocatable comes out to the byte.
func (a Amount) Of(capacity uint64) int64 {
	if a.Percent > 0 {
		return int64(float64(capacity) * float64(a.Percent))
	}
	return a.Quantity.Value()
}

// quantity is the amount as messages show it.
func (a Amount) quantity(capacity uint64) *resource.Quantity {
	if a.Percent > 0 {
		return resource.NewQuantity(a.Of(capacity), resource.BinarySI)
	}
	return &a.Quantity
}

// Threshold is how much of something must be left.
type Threshold struct {
	Signal Signal
	Least  Amount
	// Grace is how long less may be left before a pod is ended. Without any, the
	// threshold is a hard one.
	Grace time.Duration
	// Reclaim is how much more than Least has to be left again before the threshold
	// counts as kept.
	Reclaim Amount
}

// Hard reports whether pods are ended at once.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Settings are the thresholds as the configuration has them, each by signal.
type Settings struct {
	Hard, Soft, SoftGrace, MinimumReclaim map[string]string
	// Enforced says that all pods together are limited to what they may have: then
	// what memory must be left holds for what they share, too.
	Enforced bool
}

// Parse reads thresholds, the hard ones first, in the order of the signals' names. 0%
// and 100% switch one off. Those of containerfs are not for users to say: they are
// named in ignored, and follow from the others (see [forDisks]).
func Parse(s Settings) (ts []Threshold, ignored []Signal, err error) {
	var errs []error
	read := func(field, signal, text string, none bool) (Amount, bool) {
		a, err := parseAmount(text)
		switch {
		case err != nil:
		case about[Signal(signal)].resource == "":
			err = errors.New("unknown signal")
		case a.Percent == 0 && a.Quantity.IsZero() && !strings.HasSuffix(text, "%") && !none:
			err = fmt.Errorf("%q is not above zero", text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s %s: %w", field, signal, err))
		}
		return a, err == nil
	}
	add := func(field, signal, text string, grace time.Duration) {
		least, ok := read(field, signal, text, false)
		switch {
		case !ok || least.off():
			return
		case Signal(signal) == ContainerFSAvailable || Signal(signal) == ContainerFSInodesFree:
			ignored = append(ignored, Signal(signal))
			return
		}
		t := Threshold{Signal: Signal(signal), Least: least, Grace: grace}
		if text, ok := s.MinimumReclaim[signal]; ok {
			t.Reclaim, _ = read("evictionMinimumReclaim", signal, text, true)
		}
		ts = append(ts, t)
	}
	for _, signal := range slices.Sorted(maps.Keys(s.Hard)) {
		add("evictionHard", signal, s.Hard[signal], 0)
	}
	for _, signal := range slices.Sorted(maps.Keys(s.Soft)) {
		grace, err := time.ParseDuration(s.SoftGrace[signal])
		if err != nil || grace < 0 {
			errs = append(errs, fmt.Errorf("read evictionSoftGracePeriod %s: %q is not a period of grace, which a soft threshold needs", signal, s.SoftGrace[signal]))
			continue
		}
		add("evictionSoft", signal, s.Soft[signal], grace)
	}
	if s.Enforced {
		for _, t := range ts {
			if t.Signal == MemoryAvailable && t.Hard() {
				t.Signal = AllocatableMemory
				ts = append(ts, t)
			}
		}
	}
	return ts, ignored, errors.Join(errs...)
}

// off reports whether an amount switches its threshold off.
func (a Amount) off() bool { return a.Percent == 1 || a.Percent == 0 && a.Quantity.IsZero() }

func parseAmount(text string) (Amount, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(percent, 32)
		if err != nil || !(f >= 0 && f <= 100) {
			return Amount{}, fmt.Errorf("%q is not a percentage", text)
		}
		return Amount{Percent: float32(f) / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Amount{}, fmt.Errorf("%q is not a quantity: %w", text, err)
	}
	if q.Sign() < 0 {
		return Amount{}, fmt.Errorf("%q is below zero", text)
	}
	return Amount{Quantity: q}, nil
}

// Reserve is what the hard thresholds keep from pods of what the node has.
func Reserve(ts []Threshold, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, t := range ts {
		name := map[Signal]v1.ResourceName{MemoryAvailable: v1.ResourceMemory, NodeFSAvailable: v1.ResourceEphemeralStorage}[t.Signal]
		if name == "" || !t.Hard() {
			continue
		}
		have := capacity[name]
		out[name] = *resource.NewQuantity(t.Least.Of(uint64(have.Value())), resource.BinarySI)
	}
	return out
}

// Disks tells which file systems are one.
type Disks struct {
	// Images says that the images have a file system of their own.
	Images bool
	// Containers says that the containers' writable layers are not where the images
	// are.
	Containers bool
}

// forDisks adds what must be left where the containers' writable layers are: what
// holds for the file system that this one is.
func forDisks(ts []Threshold, d Disks) []Threshold {
	of := map[Signal]Signal{NodeFSAvailable: ContainerFSAvailable, NodeFSInodesFree: ContainerFSInodesFree}
	if d.Images && !d.Containers {
		of = map[Signal]Signal{ImageFSAvailable: ContainerFSAvailable, ImageFSInodesFree: ContainerFSInodesFree}
	}
	out := slices.Clone(ts)
	for _, t := range ts {
		if same, ok := of[t.Signal]; ok {
			t.Signal = same
			out = append(out, t)
		}
	}
	return out
}

// byUrgency orders thresholds: memory first, and last what nothing can be done
// about.
func byUrgency(a, b Threshold) int {
	rank := func(t Threshold) int {
		switch {
		case t.Signal.memory():
			return 0
		case about[t.Signal].resource != "":
			return 1
		}
		return 2
	}
	return cmp.Compare(rank(a), rank(b))
}
