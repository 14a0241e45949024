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

// Amount is a quantity or a percentage of the capacity.
type Amount struct {
	Quantity resource.Quantity // if Percent is 0
	Percent  float32           // as a fraction
}

// Of returns the amount in units of the capacity. The fraction is a float32, as upstream's, so that allocatable is the
// same to the byte.
func (a Amount) Of(capacity uint64) int64 {
	if a.Percent > 0 {
		return int64(float64(capacity) * float64(a.Percent))
	}
	return a.Quantity.Value()
}

// quantity returns the amount for messages.
func (a Amount) quantity(capacity uint64) *resource.Quantity {
	if a.Percent > 0 {
		return resource.NewQuantity(a.Of(capacity), resource.BinarySI)
	}
	return &a.Quantity
}

// Threshold is an eviction threshold.
type Threshold struct {
	Signal Signal
	Least  Amount
	// Grace is the grace period of a soft threshold. Zero: it is a hard one.
	Grace time.Duration
	// Reclaim is the minimum reclaim: how much more than Least has to be available until the threshold is resolved.
	Reclaim Amount
}

// Hard reports whether the threshold has no grace period.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Settings are the thresholds of the configuration, by signal.
type Settings struct {
	Hard, Soft, SoftGrace, MinimumReclaim map[string]string
	// Enforced is set if the pods have a common memory limit. The hard memory threshold then applies to it, too.
	Enforced bool
}

// Parse parses the thresholds: the hard ones first, ordered by signal. 0% and 100% disable a threshold. Thresholds for
// containerfs cannot be configured: they are returned in ignored, and derived from the others (see [addContainerFS]).
func Parse(s Settings) (ts []Threshold, ignored []Signal, err error) {
	var errs []error
	read := func(field, signal, text string, none bool) (Amount, bool) {
		a, err := parseAmount(text)
		switch {
		case err != nil:
		case signalInfo[Signal(signal)].resource == "":
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
			errs = append(errs,
				fmt.Errorf("read evictionSoftGracePeriod %s: %q is not a grace period; a soft threshold needs one",
					signal, s.SoftGrace[signal]))
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

// off reports whether the amount disables its threshold.
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

// Reserve returns what the hard thresholds reserve of the node's capacity.
func Reserve(ts []Threshold, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, t := range ts {
		name := map[Signal]v1.ResourceName{
			MemoryAvailable: v1.ResourceMemory,
			NodeFSAvailable: v1.ResourceEphemeralStorage,
		}[t.Signal]
		if name == "" || !t.Hard() {
			continue
		}
		have := capacity[name]
		out[name] = *resource.NewQuantity(t.Least.Of(uint64(have.Value())), resource.BinarySI)
	}
	return out
}

// Disks reports which file systems are separate.
type Disks struct {
	// Images is set if images are on a file system of their own.
	Images bool
	// Containers is set if writable layers are not on the file system of the images.
	Containers bool
}

// addContainerFS adds thresholds for the file system of the writable layers: those of the file system that it is
// identical to.
func addContainerFS(ts []Threshold, d Disks) []Threshold {
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

// byUrgency orders thresholds: memory first, and those that cannot be acted on last.
func byUrgency(a, b Threshold) int {
	rank := func(t Threshold) int {
		switch {
		case t.Signal.memory():
			return 0
		case signalInfo[t.Signal].resource != "":
			return 1
		}
		return 2
	}
	return cmp.Compare(rank(a), rank(b))
}
