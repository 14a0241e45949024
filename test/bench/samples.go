package bench

import (
	"math"
	"slices"
	"time"
)

// Samples are durations of the same thing.
type Samples []time.Duration

// P is the smallest sample that the share q of all samples does not exceed;
// zero if there are none.
func (s Samples) P(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle sample, or the mean of the middle two.
func (s Samples) Median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ms is a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ratio is a / b, and infinite when there is nothing to compare with: a promise
// about it must not seem kept.
func ratio[T time.Duration | float64](a, b T) float64 {
	if b == 0 {
		return math.Inf(1)
	}
	return float64(a) / float64(b)
}
