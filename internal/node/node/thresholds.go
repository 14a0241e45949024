package node

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/resources/machine"
)

// Threshold is the amount of something that must be left.
type Threshold struct {
	Signal   string
	Quantity resource.Quantity // used when Percent is 0
	Percent  float32           // of the capacity, as a fraction
}

// of is the threshold in units of the capacity. The fraction has the precision
// with which it was always computed, so that allocatable comes out to the byte.
func (t Threshold) of(capacity uint64) int64 {
	if t.Percent > 0 {
		return int64(float64(capacity) * float64(t.Percent))
	}
	return t.Quantity.Value()
}

// signals tell which pressure each signal means.
var signals = map[string]v1.NodeConditionType{
	"memory.available":       v1.NodeMemoryPressure,
	"nodefs.available":       v1.NodeDiskPressure,
	"nodefs.inodesFree":      v1.NodeDiskPressure,
	"imagefs.available":      v1.NodeDiskPressure,
	"imagefs.inodesFree":     v1.NodeDiskPressure,
	"containerfs.available":  v1.NodeDiskPressure,
	"containerfs.inodesFree": v1.NodeDiskPressure,
	"pid.available":          v1.NodePIDPressure,
}

// ParseThresholds reads the evictionHard map of the configuration, in the order
// of the signals' names. 0% and 100% switch a signal off.
func ParseThresholds(m map[string]string) ([]Threshold, error) {
	var out []Threshold
	var errs []error
	for signal, text := range m {
		t, on, err := parseThreshold(signal, text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read eviction threshold %s: %w", signal, err))
		case on:
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Threshold) int { return strings.Compare(a.Signal, b.Signal) })
	return out, errors.Join(errs...)
}

func parseThreshold(signal, text string) (t Threshold, on bool, err error) {
	if _, ok := signals[signal]; !ok {
		return t, false, errors.New("unknown signal")
	}
	t.Signal = signal
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(percent, 32)
		if err != nil || f < 0 || f > 100 {
			return t, false, fmt.Errorf("%q is not a percentage", text)
		}
		t.Percent = float32(f) / 100
		return t, f > 0 && f < 100, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return t, false, fmt.Errorf("%q is not a quantity: %w", text, err)
	}
	if q.Sign() <= 0 {
		return t, false, fmt.Errorf("%q is not above zero", text)
	}
	t.Quantity = q
	return t, true, nil
}

// Usage is what is left on the machine at one moment. A nil part could not be
// measured; nothing is concluded from it.
type Usage struct {
	Memory  *machine.Memory
	NodeFS  *machine.Filesystem
	ImageFS *machine.Filesystem
	// ContainerFS holds the writable layers of containers.
	ContainerFS *machine.Filesystem
	PIDs        *int64 // processes and threads that exist
}

// pressures tells which resources are below their thresholds.
func pressures(ts []Threshold, u Usage, maxPIDs int64) map[v1.NodeConditionType]bool {
	out := map[v1.NodeConditionType]bool{}
	for _, t := range ts {
		capacity, left, known := u.measure(t.Signal, maxPIDs)
		if known && left < t.of(capacity) {
			out[signals[t.Signal]] = true
		}
	}
	return out
}

// measure finds what a signal is about.
func (u Usage) measure(signal string, maxPIDs int64) (capacity uint64, left int64, known bool) {
	what, kind, _ := strings.Cut(signal, ".")
	switch what {
	case "memory":
		if u.Memory != nil {
			return u.Memory.Total, int64(u.Memory.Available()), true
		}
		return 0, 0, false
	case "pid":
		if u.PIDs != nil && maxPIDs > 0 {
			return uint64(maxPIDs), maxPIDs - *u.PIDs, true
		}
		return 0, 0, false
	}
	fs := u.NodeFS
	switch what {
	case "imagefs":
		fs = u.ImageFS
	case "containerfs":
		fs = u.ContainerFS
	}
	switch {
	case fs == nil:
		return 0, 0, false
	case kind == "available":
		return fs.Capacity, int64(fs.Available), true
	default: // some file systems make inodes as they need them and say 0 of 0
		return fs.Inodes, int64(fs.InodesFree), fs.Inodes > 0
	}
}
