package bench

import (
	"math"
	"slices"
	"time"
)

// Samples are measured durations of one quantity.
type Samples []time.Duration

// P returns the smallest sample that the share q of all samples does not exceed, or zero if there are none.
func (s Samples) P(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle sample, or the mean of the middle two.
func (s Samples) Median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ratio returns a / b, or infinity if b is zero. So a bound on the ratio is not met if there is no value to compare
// with.
func ratio[T time.Duration | float64](a, b T) float64 {
	if b == 0 {
		return math.Inf(1)
	}
	return float64(a) / float64(b)
}
