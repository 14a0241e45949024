package clock

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Backoff returns a back-off whose pauses double from first to last. Each copy of it begins with first.
func Backoff(first, last time.Duration) wait.Backoff {
	return wait.Backoff{
		Duration: first,
		Factor:   2,
		Steps:    math.MaxInt32,
		Cap:      last,
	}
}

// Jittered returns a back-off whose pauses are longer by up to a fraction of their length, at random.
func Jittered(b wait.Backoff, fraction float64) wait.Backoff {
	b.Jitter = fraction
	return b
}
