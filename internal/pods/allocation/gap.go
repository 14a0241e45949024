package allocation

import (
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"keelson/internal/pods/pod"
)

// Gap is the difference between what is allocated to a pod and what its running containers have actuated.
type Gap struct {
	// Restart names the containers that must be restarted for it.
	Restart []string
	// Update are the changes that are made to running containers.
	Update []Change
	// Pod: the allocated pod-level resources differ from the actuated ones.
	Pod bool
}

// Open reports whether there is any difference.
func (g Gap) Open() bool { return len(g.Restart) > 0 || len(g.Update) > 0 || g.Pod }

// Change is a new amount of one resource for one container.
type Change struct {
	Container string
	ID        string // of the instance that runs
	Resource  v1.ResourceName
	// Now is the actuated limit and Next the allocated one; if they are equal, these are the requests. No limit is
	// Unlimited.
	Now, Next int64
	// Limit: the limit changes, not the request alone.
	Limit bool
}

// Unlimited is the amount that stands for no limit.
const Unlimited = math.MaxInt64

// gap compares the actuated resources with those of p, which has its allocated resources.
// Containers that do not run get the allocated resources when they start. A container
// without a limit has that of the pod, and is restarted for a change of it if its
// resizePolicy requires that; but not for a limit that could not be actuated, since the
// container would be restarted again and again.
func gap(p *v1.Pod, have pod.Runtime, actuated Resources, failing bool) Gap {
	var g Gap
	for kind, c := range pod.Containers(p) {
		inst, ok := have.Latest(c.Name)
		if kind == pod.Ephemeral || !ok || inst.State != pod.StateRunning {
			continue
		}
		now, known := actuated.Containers[c.Name]
		if !known {
			continue
		}
		restart := false
		var changes []Change
		for _, res := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
			wasLimit, limit := effective(now, actuated.Pod, res), effective(c.Resources, p.Spec.Resources, res)
			was, next := amount(now.Requests, res), amount(c.Resources.Requests, res)
			ownLimit := amount(now.Limits, res) != amount(c.Resources.Limits, res)
			if (wasLimit != limit && (ownLimit || !failing) || was != next) && restartsFor(c, res) {
				restart = true
			}
			switch {
			case wasLimit != limit:
				changes = append(changes, Change{c.Name, inst.ID, res, wasLimit, limit, true})
			case was != next:
				changes = append(changes, Change{c.Name, inst.ID, res, was, next, false})
			}
		}
		if restart {
			g.Restart = append(g.Restart, c.Name)
		} else {
			g.Update = append(g.Update, changes...)
		}
	}
	if p.Spec.Resources != nil && actuated.Pod != nil && !samePod(p.Spec.Resources, actuated.Pod) {
		g.Pod = true
	}
	return g
}

// effective is the limit in force for a container: its own or the pod's.
func effective(c v1.ResourceRequirements, whole *v1.ResourceRequirements, name v1.ResourceName) int64 {
	if q := amount(c.Limits, name); q > 0 {
		return q
	}
	if whole != nil {
		if q := amount(whole.Limits, name); q > 0 {
			return q
		}
	}
	return Unlimited
}

// Size is what a pod's cgroup allows, in the kernel's units.
type Size struct {
	Weight int64 // of its CPU among others
	Shares int64 // the weight as cpu.shares, which CRI requests have
	Quota  int64 // µs of CPU a period, or Unlimited
	Period int64 // µs
	Memory int64 // bytes, or Unlimited
}

// Step is one write of a resize.
type Step struct {
	Resource v1.ResourceName
	// Change is that of a container; nil: the pod's cgroup is written.
	Change *Change
	// Limit: the limit of the pod's cgroup is written, not its weight.
	Limit bool
}

// Plan puts the writes of a resize in order, memory before CPU. At no time may the containers together use more than
// their pod. So the pod's cgroup is raised before its containers and lowered after them, and containers that get less
// come before those that get more. The limit of the pod's cgroup is raised before its weight and lowered after it.
func Plan(now, next Size, changes []Change) []Step {
	var steps []Step
	for _, res := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		nowLimit, nextLimit := now.Memory, next.Memory
		var nowWeight, nextWeight int64 // memory has none
		if res == v1.ResourceCPU {
			nowLimit, nextLimit, nowWeight, nextWeight = now.Quota, next.Quota, now.Weight, next.Weight
		}
		if nextLimit > nowLimit {
			steps = append(steps, Step{Resource: res, Limit: true})
		}
		if nextWeight > nowWeight {
			steps = append(steps, Step{Resource: res})
		}
		mine := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Resource != res })
		slices.SortStableFunc(mine, func(a, b Change) int { return boolInt(a.Next > a.Now) - boolInt(b.Next > b.Now) })
		for i := range mine {
			steps = append(steps, Step{Resource: res, Change: &mine[i]})
		}
		if nextWeight < nowWeight {
			steps = append(steps, Step{Resource: res})
		}
		if nextLimit < nowLimit {
			steps = append(steps, Step{Resource: res, Limit: true})
		}
	}
	return steps
}

// After returns the limits of the pod's cgroup after the step, which must be a step of the pod's cgroup.
func (s Step) After(now, next Size) Size {
	switch {
	case s.Resource == v1.ResourceMemory:
		now.Memory = next.Memory
	case s.Limit:
		now.Quota, now.Period = next.Quota, next.Period
	default:
		now.Weight, now.Shares = next.Weight, next.Shares
	}
	return now
}

// BelowUsage refuses memory limits that are not above what is in use: the kernel would kill processes to enforce them.
// usage returns the memory usage of the container with an ID, or of the pod if the ID is empty.
func BelowUsage(now, next Size, changes []Change, usage func(id string) (int64, error)) error {
	var below []error
	check := func(what, id string, was, limit int64) error {
		if limit >= was {
			return nil
		}
		used, err := usage(id)
		if err != nil {
			return fmt.Errorf("read the memory usage of %s: %w", what, err)
		}
		if used >= limit {
			below = append(below, fmt.Errorf("attempting to set %s memory limit (%d) below current usage (%d)",
				what, limit, used))
		}
		return nil
	}
	if err := check("pod", "", now.Memory, next.Memory); err != nil {
		return err
	}
	for _, c := range changes {
		if c.Resource == v1.ResourceMemory && c.Limit {
			if err := check(fmt.Sprintf("container %q", c.Container), c.ID, c.Now, c.Next); err != nil {
				return err
			}
		}
	}
	if err := utilerrors.NewAggregate(below); err != nil {
		return fmt.Errorf("cannot decrease memory limits: %w", err)
	}
	return nil
}

// Between is what a container has actuated after one resource was changed from now to next, and others not yet.
func Between(now, next v1.ResourceRequirements, res v1.ResourceName) v1.ResourceRequirements {
	return v1.ResourceRequirements{
		Limits:   swap(now.Limits, next.Limits, res),
		Requests: swap(now.Requests, next.Requests, res),
		Claims:   next.Claims,
	}
}

func swap(now, next v1.ResourceList, res v1.ResourceName) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range next {
		if name == res || name != v1.ResourceCPU && name != v1.ResourceMemory {
			out[name] = q
		}
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if q, ok := now[name]; ok && name != res {
			out[name] = q
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
