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

// runtimeStale is how old the runtime's last answer that it is ready may be before it
// counts as down.
const runtimeStale = 30 * time.Second

// Health is the runtime as it was last seen.
type Health struct {
	Seen   time.Time // of the last answer; zero before the first
	Well   time.Time // of the last answer that the runtime is ready; zero before the first
	Status cri.Status
}

// verdict is a condition without its times.
type verdict struct {
	kind            v1.NodeConditionType
	status          v1.ConditionStatus
	reason, message string
	event           string // told when the status changes
}

// readiness is the Ready condition. ill are the failed checks, and problems the errors
// of other parts. They are listed in upstream's order.
func readiness(h Health, ill, problems []error, capacity v1.ResourceList, storage bool, now time.Time) verdict {
	errs := slices.Concat(contact(h, now), ill, runtimeProblems(h), problems)
	if missing := missingCapacity(capacity, storage); len(missing) > 0 {
		errs = append(errs, fmt.Errorf("missing node capacity for resources: %s", strings.Join(missing, ", ")))
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return verdict{v1.NodeReady, v1.ConditionFalse, "KubeletNotReady", err.Error(), EventNotReady}
	}
	return verdict{v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status", EventReady}
}

// contact says whether the runtime answers, and is ready: as upstream, one that says for
// long that it is not counts as down as well.
func contact(h Health, now time.Time) []error {
	switch {
	case h.Well.IsZero():
		return []error{errors.New("container runtime status check may not have completed yet")}
	case now.Sub(h.Well) >= runtimeStale:
		return []error{errors.New("container runtime is down")}
	}
	return nil
}

// runtimeProblems are the errors in the runtime's status.
func runtimeProblems(h Health) []error {
	if h.Seen.IsZero() {
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

// pressureVerdicts are the three pressure conditions, in the order they are shown.
func pressureVerdicts(on map[v1.NodeConditionType]bool) []verdict {
	var out []verdict
	for _, c := range []struct{ yes, no verdict }{
		{
			verdict{v1.NodeMemoryPressure, v1.ConditionTrue, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"},
			verdict{v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"},
		},
		{
			verdict{v1.NodeDiskPressure, v1.ConditionTrue, "KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"},
			verdict{v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"},
		},
		{
			verdict{v1.NodePIDPressure, v1.ConditionTrue, "KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"},
			verdict{v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"},
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

// conditions puts verdicts on the conditions there are, and names the events of
// those that turned. Conditions of others stay where they are. A condition that
// was not there before turns from unknown, except for Ready, whose first word is
// no news.
func conditions(prev []v1.NodeCondition, vs []verdict, now time.Time) (out []v1.NodeCondition, events []string) {
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
