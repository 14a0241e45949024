package eviction

import (
	"maps"

	v1 "k8s.io/api/core/v1"
)

// Keep is what is kept from pods so that nothing has to be evicted: the hard thresholds.
type Keep struct {
	Thresholds []Threshold
	Off        bool // nothing is kept
}

// Of are the thresholds as amounts of the capacity, which are subtracted from allocatable.
func (k Keep) Of(capacity v1.ResourceList) v1.ResourceList {
	if k.Off {
		return nil
	}
	return Reserve(k.Thresholds, capacity)
}

// With is what is reserved together with the thresholds.
func (k Keep) With(reserved, capacity v1.ResourceList) v1.ResourceList {
	sum := v1.ResourceList{}
	maps.Copy(sum, reserved)
	for name, q := range k.Of(capacity) {
		have := sum[name]
		have.Add(q)
		sum[name] = have
	}
	return sum
}
