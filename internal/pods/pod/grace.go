package pod

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// DefaultGrace applies where a specification names no grace period.
	DefaultGrace = 30 * time.Second
	// MinStopTimeout is the least timeout ever sent to the runtime when a
	// container is stopped, however little of the grace period is left.
	MinStopTimeout = 2 * time.Second
)

// Grace is the time the pod's containers get between being asked and being made
// to stop: the deletion's own if the pod is being deleted, else the
// specification's. It is never below one second.
func Grace(p *v1.Pod) time.Duration {
	s := int64(DefaultGrace / time.Second)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		s = *p.Spec.TerminationGracePeriodSeconds
	}
	if p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil {
		s = *p.DeletionGracePeriodSeconds
	}
	return max(Seconds(s), time.Second)
}

// longest is what a number of seconds stands for that is too large to compute
// with: a hundred years.
const longest = 100 * 365 * 24 * time.Hour

// Seconds is the time that a number of the API or of an annotation means. Both
// may name more seconds than a duration can hold.
func Seconds(n int64) time.Duration {
	most := int64(longest / time.Second)
	return time.Duration(min(max(n, -most), most)) * time.Second
}

// GraceFromAnnotations reads the grace period that was written on a container
// when it was created; it serves for containers whose pod no source knows.
func GraceFromAnnotations(a map[string]string) (time.Duration, bool) {
	for _, k := range []string{AnnotationDeletionGracePeriod, AnnotationTerminationGracePeriod} {
		if s, err := strconv.ParseInt(a[k], 10, 64); err == nil {
			return max(Seconds(s), time.Second), true
		}
	}
	return 0, false
}
