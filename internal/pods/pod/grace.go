package pod

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// DefaultGrace is the grace period where a specification has none.
	DefaultGrace = 30 * time.Second
	// MinStopTimeout is the minimum timeout of a StopContainer request, even if less of the
	// grace period is left.
	MinStopTimeout = 2 * time.Second
)

// Grace is the pod's termination grace period: that of the deletion if the pod is being
// deleted, else that of the specification. It is at least one second.
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

// longest replaces numbers of seconds that a duration cannot hold: a hundred years.
const longest = 100 * 365 * 24 * time.Hour

// Seconds converts a number of seconds, capped at longest.
func Seconds(n int64) time.Duration {
	most := int64(longest / time.Second)
	return time.Duration(min(max(n, -most), most)) * time.Second
}

// GraceFromAnnotations reads the grace period from the annotations of a container; it is
// used for orphaned containers.
func GraceFromAnnotations(a map[string]string) (time.Duration, bool) {
	for _, k := range []string{AnnotationDeletionGracePeriod, AnnotationTerminationGracePeriod} {
		if s, err := strconv.ParseInt(a[k], 10, 64); err == nil {
			return max(Seconds(s), time.Second), true
		}
	}
	return 0, false
}
