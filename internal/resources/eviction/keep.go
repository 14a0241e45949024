package eviction

import (
	"maps"

	v1 "k8s.io/api/core/v1"
)

// Keep computes how much of the node's capacity is withheld from pods: the hard thresholds.
type Keep struct {
	Thresholds []Threshold
	Off        bool // nothing is withheld
}

// Of returns the hard thresholds as amounts of the capacity. They are subtracted from allocatable.
func (k Keep) Of(capacity v1.ResourceList) v1.ResourceList {
	if k.Off {
		return nil
	}
	return Reserve(k.Thresholds, capacity)
}

// With returns the sum of reserved and the hard thresholds.
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
