package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/runtime/cri"
)

// runtimeStale is the age of the runtime's last ready status from which it counts as down.
const runtimeStale = 30 * time.Second

// Health is the last observed state of the runtime.
type Health struct {
	LastResponse time.Time // of the last response; zero: none
	LastReady    time.Time // of the last response with a ready runtime; zero: none
	Status       cri.Status
}

// newCondition is a condition without its timestamps.
type newCondition struct {
	kind            v1.NodeConditionType
	status          v1.ConditionStatus
	reason, message string
	event           string // recorded when the status changes
}

// readyCondition returns the Ready condition. ill are the failed checks, and problems the errors of other parts. They
// are listed in upstream's order.
func readyCondition(h Health, ill, problems []error, capacity v1.ResourceList, storage bool,
	now time.Time) newCondition {
	errs := slices.Concat(runtimeDown(h, now), ill, runtimeProblems(h), problems)
	if missing := missingCapacity(capacity, storage); len(missing) > 0 {
		errs = append(errs, fmt.Errorf("missing node capacity for resources: %s", strings.Join(missing, ", ")))
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return newCondition{v1.NodeReady, v1.ConditionFalse, "KubeletNotReady", err.Error(), EventNotReady}
	}
	return newCondition{v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status", EventReady}
}

// runtimeDown returns an error if the runtime does not respond. As upstream, a runtime that has not been ready for long
// counts as down, too.
func runtimeDown(h Health, now time.Time) []error {
	switch {
	case h.LastReady.IsZero():
		return []error{errors.New("container runtime status check may not have completed yet")}
	case now.Sub(h.LastReady) >= runtimeStale:
		return []error{errors.New("container runtime is down")}
	}
	return nil
}

// runtimeProblems returns the errors of the runtime's status.
func runtimeProblems(h Health) []error {
	if h.LastResponse.IsZero() {
		return []error{errors.New("network state unknown")}
	}
	var errs []error
	if c := h.Status.Runtime; !c.OK {
		errs = append(errs, fmt.Errorf("container runtime not ready: %s", describe(runtimeapi.RuntimeReady, c)))
	}
	if c := h.Status.Network; !c.OK {
		errs = append(errs, fmt.Errorf("container runtime network not ready: %s", describe(runtimeapi.NetworkReady, c)))
	}
	return errs
}

func describe(kind string, c cri.Condition) string {
	return fmt.Sprintf("%s=%t reason:%s message:%s", kind, c.OK, c.Reason, c.Message)
}

func missingCapacity(capacity v1.ResourceList, storage bool) []string {
	need := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	if storage {
		need = append(need, v1.ResourceEphemeralStorage)
	}
	var missing []string
	for _, name := range need {
		if _, ok := capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	return missing
}

// pressureVerdicts returns the three pressure conditions in their order in the status.
func pressureVerdicts(on map[v1.NodeConditionType]bool) []newCondition {
	var out []newCondition
	for _, c := range []struct{ yes, no newCondition }{
		{
			newCondition{
				v1.NodeMemoryPressure,
				v1.ConditionTrue,
				"KubeletHasInsufficientMemory",
				"kubelet has insufficient memory available",
				"NodeHasInsufficientMemory",
			},
			newCondition{
				v1.NodeMemoryPressure,
				v1.ConditionFalse,
				"KubeletHasSufficientMemory",
				"kubelet has sufficient memory available",
				"NodeHasSufficientMemory",
			},
		},
		{
			newCondition{
				v1.NodeDiskPressure,
				v1.ConditionTrue,
				"KubeletHasDiskPressure",
				"kubelet has disk pressure",
				"NodeHasDiskPressure",
			},
			newCondition{
				v1.NodeDiskPressure,
				v1.ConditionFalse,
				"KubeletHasNoDiskPressure",
				"kubelet has no disk pressure",
				"NodeHasNoDiskPressure",
			},
		},
		{
			newCondition{
				v1.NodePIDPressure,
				v1.ConditionTrue,
				"KubeletHasInsufficientPID",
				"kubelet has insufficient PID available",
				"NodeHasInsufficientPID",
			},
			newCondition{
				v1.NodePIDPressure,
				v1.ConditionFalse,
				"KubeletHasSufficientPID",
				"kubelet has sufficient PID available",
				"NodeHasSufficientPID",
			},
		},
	} {
		if on[c.yes.kind] {
			out = append(out, c.yes)
		} else {
			out = append(out, c.no)
		}
	}
	return out
}

// conditions updates the conditions of the status, and returns the events of those that changed. Conditions of other
// components are kept. A new condition counts as a change from unknown, except for Ready.
func conditions(prev []v1.NodeCondition, vs []newCondition, now time.Time) (out []v1.NodeCondition, events []string) {
	stamp := metav1.NewTime(now)
	out = slices.Clone(prev)
	for _, v := range vs {
		i := slices.IndexFunc(out, func(c v1.NodeCondition) bool { return c.Type == v.kind })
		known := i >= 0
		if !known {
			out = append(out, v1.NodeCondition{Type: v.kind})
			i = len(out) - 1
		}
		c := &out[i]
		if c.Status != v.status {
			c.LastTransitionTime = stamp
			if known || v.kind != v1.NodeReady {
				events = append(events, v.event)
			}
		}
		c.Status, c.Reason, c.Message, c.LastHeartbeatTime = v.status, v.reason, v.message, stamp
	}
	return out, events
}
