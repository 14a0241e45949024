package podsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
)

// resizePod is the task that puts in force what a pod was granted. It is no step of
// the plan: no container comes or goes by it.
const resizePod podplan.Verb = "resize"

// toResize is what there is to do for the resources of a pod.
type toResize struct {
	allocation.Gap
	pod     *v1.Pod // with what it was granted
	sandbox string  // the one that is ready
	runs    bool    // a container does
	due     bool    // the cgroup, or a container, is to be written now
	// holds: containers start when the pod's cgroup has room for them.
	holds bool
	// wanted: it is for a resize, and not only to see what an earlier agent left.
	wanted bool
}

// restarts are the containers that take what was granted by a restart.
func (r toResize) restarts() map[string]bool {
	if len(r.Restart) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, n := range r.Restart {
		names[n] = true
	}
	return names
}

// gap finds out what the pod lacks of what it was granted. Containers that have to
// be restarted come down first; then the pod's cgroup and the others are written;
// then what came down starts again.
func (w *worker) gap(have pod.Runtime, busy map[string]podplan.Task) toResize {
	r := toResize{pod: w.spec}
	w.mu.Lock()
	isGoing, sized := w.going != nil, w.sized
	w.mu.Unlock()
	sandbox, ready := have.ReadySandbox()
	if w.spec == nil || isGoing || !w.admitted || !ready || sandbox.Uprooted {
		return r
	}
	r.sandbox, r.runs = sandbox.ID, have.Live()
	a := w.s.cfg.Allocation
	r.Gap = a.Gap(w.spec, settled(have, busy))
	fits := sized != nil && (sized == w.spec || allocation.Of(sized).Equal(allocation.Of(w.spec)))
	open := r.Open() || !fits
	_, writing := busy[string(resizePod)]
	a.Progress(w.spec, r.Open() || sized != nil && !fits || writing && a.Failing(w.uid))
	if w.resized == nil || !allocation.Of(w.resized).Equal(allocation.Of(w.spec)) {
		w.resized = w.spec
		w.mu.Lock()
		delete(w.retries, string(resizePod)) // what failed was something else
		w.mu.Unlock()
	}
	r.wanted = r.Open() || sized != nil
	r.due = open && len(r.Restart) == 0
	r.holds = open && !a.Failing(w.uid)
	return r
}

// settled leaves out containers that are being started: what they were started
// with is told when that is done.
func settled(have pod.Runtime, busy map[string]podplan.Task) pod.Runtime {
	have.Containers = slices.DeleteFunc(slices.Clone(have.Containers), func(c pod.Container) bool { return busy[c.Name].Verb == podplan.Start })
	return have
}

// resize starts writing, if that is due.
func (w *worker) resize(ctx context.Context, tasks *sync.WaitGroup, r toResize) {
	if !r.due {
		return
	}
	w.once(ctx, tasks, resizePod, func(ctx context.Context) error {
		began := w.s.cfg.Now()
		wrote, err := w.enforce(ctx, r)
		if ctx.Err() != nil {
			return err
		}
		if errors.Is(err, errUprooted) {
			w.uproot(r.sandbox)
			return nil
		}
		if wrote || err != nil && r.wanted {
			w.s.cfg.Allocation.Tried(r.pod, w.s.cfg.Now().Sub(began), err)
		}
		if err == nil {
			w.s.cfg.Allocation.EnforcedPod(r.pod)
			w.mu.Lock()
			w.sized = r.pod
			w.mu.Unlock()
		}
		return err
	})
}

// enforce writes what the pod was granted, and reports whether there was anything
// to write.
func (w *worker) enforce(ctx context.Context, r toResize) (wrote bool, err error) {
	cfg := &w.s.cfg
	now, next, err := w.sizes(r.pod)
	if errors.Is(err, fs.ErrNotExist) { // somebody has removed it, or part of it
		if r.runs && cfg.Cgroups.Gone(r.pod) {
			return false, errUprooted
		}
		if err = cfg.Cgroups.EnsurePod(ctx, r.pod); err == nil {
			now, next, err = w.sizes(r.pod)
		}
	}
	if err != nil {
		return false, err
	}
	err = allocation.BelowUsage(now, next, r.Update, func(id string) (usage int64, err error) {
		if id == "" {
			usage, err = cfg.Cgroups.MemoryUsage(r.pod)
		} else {
			usage, err = cfg.Containers.MemoryUsage(ctx, id)
		}
		if err != nil {
			err = pod.ShowAs(fmt.Sprintf("unable to read memory usage for pod %q", described(r.pod)), err)
		}
		return usage, err
	})
	if err != nil {
		return false, err
	}
	steps := allocation.Plan(now, next, r.Update)
	for _, s := range steps {
		if s.Change == nil {
			now, err = w.resizeWhole(ctx, r, now, s.After(now, next), s)
		} else {
			err = w.update(ctx, r.pod, *s.Change)
		}
		if err != nil {
			break
		}
	}
	if len(r.Update) > 0 {
		if _, seen := cfg.Observed.Refresh(ctx, w.uid); seen != nil {
			err = errors.Join(err, seen)
		}
	}
	return len(steps) > 0, err
}

// sizes returns the current and the desired limits of the pod's cgroup.
func (w *worker) sizes(p *v1.Pod) (now, next allocation.Size, err error) {
	now, next, err = w.s.cfg.Cgroups.Size(p)
	if err != nil {
		err = pod.ShowAs(fmt.Sprintf("unable to get pod cgroup memory config for pod %q", described(p)), err)
	}
	return now, next, err
}

// described is how upstream names a pod in the reasons why a resize failed.
func described(p *v1.Pod) string { return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID) }

// resizeWhole writes one value of the pod's cgroup. The runtime is notified first and may
// reject the change, as runtimes that run pods in virtual machines do. It returns the
// limits of the cgroup afterwards.
func (w *worker) resizeWhole(
	ctx context.Context,
	r toResize,
	now, next allocation.Size,
	s allocation.Step,
) (allocation.Size, error) {
	cfg := &w.s.cfg
	if err := cfg.Containers.UpdateSandbox(ctx, r.pod, r.sandbox, podSize(next)); err != nil {
		text := fmt.Sprintf("failed to notify runtime for UpdatePodSandboxResources (resource=%s); resize rejected: "+
			"updatePodSandboxResources failed for sanboxID %q: %v", s.Resource, r.sandbox, cri.Cause(err)) // sic, as upstream's
		return now, pod.ShowAs(text, fmt.Errorf("resize pod: %w", cri.Cause(err)))
	}
	if err := cfg.Cgroups.Resize(r.pod, s.Resource, s.Limit); err != nil {
		if back := cfg.Containers.UpdateSandbox(ctx, r.pod, r.sandbox, podSize(now)); back != nil {
			err = errors.Join(err, fmt.Errorf("take back what the runtime was told: %w", cri.Cause(back)))
		}
		return now, err
	}
	return next, nil
}

// podSize is the size of a pod's cgroup as CRI requests have it.
func podSize(s allocation.Size) container.PodSize {
	or := func(limit int64) int64 {
		if limit == allocation.Unlimited {
			return -1
		}
		return limit
	}
	return container.PodSize{
		Shares: s.Shares,
		Quota:  or(s.Quota),
		Period: s.Period,
		Memory: or(s.Memory),
	}
}

// update gives a container one resource as it was granted; the other stays as it
// is in force.
func (w *worker) update(ctx context.Context, p *v1.Pod, c allocation.Change) error {
	_, granted, ok := pod.Find(p, c.Container)
	inForce := w.s.cfg.Allocation.InForce(p)
	_, force, known := pod.Find(inForce, c.Container)
	if !ok || !known {
		return fmt.Errorf("resize container %s: the pod has none of that name", c.Container)
	}
	r := allocation.Between(force.Resources, granted.Resources, c.Resource)
	as := allocation.Resources{Containers: map[string]v1.ResourceRequirements{c.Container: r}, Pod: p.Spec.Resources}
	if whole := inForce.Spec.Resources; whole != nil && p.Spec.Resources != nil && c.Resource == v1.ResourceMemory {
		// What the container takes from the pod goes one by one, too; CPU comes last.
		mixed := allocation.Between(*whole, *p.Spec.Resources, c.Resource)
		as.Pod = &mixed
	}
	if err := w.s.cfg.Containers.UpdateResources(ctx, as.On(p), c.Container, c.ID); err != nil {
		return pod.ShowAs(cri.Text(err), fmt.Errorf("resize container %s: %w", c.Container, cri.Cause(err)))
	}
	w.s.cfg.Allocation.Enforced(p, c.Container, r)
	return nil
}
