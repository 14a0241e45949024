package podsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
)

// errCgroupGone is the error if containers run and their pod has no cgroup. The kernel does not remove a cgroup with
// processes, so they were started in a cgroup of another parent, by an agent with another cgroup root or driver.
var errCgroupGone = errors.New("the pod's cgroup is gone, and its containers run")

// needOf returns what has to be done to actuate the pod's allocated resources.
func (g gatherer) needOf(in *podplan.Input) podplan.ResizeNeed {
	box := &g.w.sandboxes
	sandbox, ready := in.Have.ReadySandbox()
	if !ready || sandbox.ID == box.cgroupGone || g.creatingFirstSandbox() {
		return podplan.ResizeNeed{}
	}
	cfg, spec := &g.w.s.cfg, in.Pod
	gap := cfg.Allocation.Gap(spec, settled(in))
	fits := box.fits(spec)
	open, resize := gap.Open() || !fits, podplan.KeyOf(podplan.Resize, podplan.ThePod)
	_, writing := in.Busy[resize]
	cfg.Allocation.Progress(spec, gap.Open() || box.sized != nil && !fits || writing && cfg.Allocation.Failing(g.w.uid))
	if box.resized == nil || !allocation.Of(box.resized).Equal(allocation.Of(spec)) {
		box.resized = spec
		delete(g.w.tasks.retries, resize) // what failed was another resize
		delete(in.RetryAt, resize)
	}
	need := podplan.ResizeNeed{
		Open:    open,
		Failing: cfg.Allocation.Failing(g.w.uid),
		Restart: map[string]bool{},
	}
	for _, name := range gap.Restart {
		need.Restart[name] = true
	}
	return need
}

// creatingFirstSandbox reports whether the pod's first sandbox is being created: the same task creates its cgroup with
// the allocated resources.
func (g gatherer) creatingFirstSandbox() bool {
	t, creating := g.w.tasks.running[podplan.KeyOf(podplan.RunSandbox, podplan.NewSandbox)]
	return creating && t.attempt == 0
}

// fits reports whether the pod's cgroup is known to have the resources of p.
func (s *sandboxes) fits(p *v1.Pod) bool {
	return s.sized != nil && (s.sized == p || allocation.Of(s.sized).Equal(allocation.Of(p)))
}

// settled returns the observed state without containers that are being started: what they have actuated is recorded
// when the start has ended.
func settled(in *podplan.Input) pod.Runtime {
	have := in.Have
	have.Containers = slices.DeleteFunc(slices.Clone(have.Containers), func(c pod.Container) bool {
		return in.Busy[podplan.KeyOf(podplan.Start, podplan.Container(c.Name))].Verb == podplan.Start
	})
	return have
}

// resizing is one attempt to actuate the allocated resources of a pod.
type resizing struct {
	allocation.Gap
	cfg     *Config
	pod     *v1.Pod // with its allocated resources
	sandbox string  // the one that is ready
	runs    bool    // a container runs
	// wanted: it is for a resize, and not only to check what an earlier agent has written.
	wanted bool
}

// resize writes the allocated resources to the pod's cgroup and to its containers.
func (do performer) resize() work {
	sandbox, _ := do.in.Have.ReadySandbox()
	r := resizing{
		Gap:     do.w.s.cfg.Allocation.Gap(do.in.Pod, settled(do.in)),
		cfg:     &do.w.s.cfg,
		pod:     do.in.Pod,
		sandbox: sandbox.ID,
		runs:    do.in.Have.Live(),
	}
	r.wanted = r.Open() || do.w.sandboxes.sized != nil
	return r.run
}

func (r resizing) run(ctx context.Context) (result, error) {
	began := r.cfg.Now()
	wrote, err := r.enforce(ctx)
	switch {
	case ctx.Err() != nil:
		return result{}, err
	case errors.Is(err, errCgroupGone):
		return result{outcome: cgroupGone{r.sandbox}}, nil
	}
	if wrote || err != nil && r.wanted {
		r.cfg.Allocation.Tried(r.pod, r.cfg.Now().Sub(began), err)
	}
	if err != nil {
		return result{}, err
	}
	r.cfg.Allocation.SetPodActuated(r.pod)
	return result{outcome: cgroupSized{r.pod}}, nil
}

// cgroupGone is the sandbox of a pod whose cgroup is gone: the pod's limits do not apply to its containers.
type cgroupGone struct{ sandbox string }

func (u cgroupGone) apply(w *worker) {
	w.log.Warn("the pod's cgroup was removed while its containers run: they are restarted", "sandbox", u.sandbox)
	w.sandboxes.cgroupGone = u.sandbox
}

// enforce writes what is allocated to the pod, and reports whether there was anything to write.
func (r resizing) enforce(ctx context.Context) (wrote bool, err error) {
	cfg := r.cfg
	now, next, err := r.sizes()
	if errors.Is(err, fs.ErrNotExist) { // it was removed, or part of it
		if r.runs && cfg.Cgroups.Gone(r.pod) {
			return false, errCgroupGone
		}
		if err = cfg.Cgroups.EnsurePod(ctx, r.pod); err == nil {
			now, next, err = r.sizes()
		}
	}
	if err != nil {
		return false, err
	}
	err = allocation.BelowUsage(now, next, r.Update, func(id string) (usage int64, err error) {
		if id == "" {
			usage, err = cfg.Cgroups.MemoryUsage(r.pod)
		} else {
			usage, err = cfg.Runtime.MemoryUsage(ctx, id)
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
			now, err = r.resizePod(ctx, now, s.After(now, next), s)
		} else {
			err = r.update(ctx, *s.Change)
		}
		if err != nil {
			break
		}
	}
	if len(r.Update) > 0 {
		if _, seen := cfg.Runtime.Refresh(ctx, r.pod.UID); seen != nil {
			err = errors.Join(err, seen)
		}
	}
	return len(steps) > 0, err
}

// sizes returns the current and the desired limits of the pod's cgroup.
func (r resizing) sizes() (now, next allocation.Size, err error) {
	now, next, err = r.cfg.Cgroups.Size(r.pod)
	if err != nil {
		err = pod.ShowAs(fmt.Sprintf("unable to get pod cgroup memory config for pod %q", described(r.pod)), err)
	}
	return now, next, err
}

// described is how upstream names a pod in the reasons why a resize failed.
func described(p *v1.Pod) string { return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID) }

// resizePod writes one value of the pod's cgroup. The runtime is notified first and may
// reject the change, as runtimes that run pods in virtual machines do. It returns the
// limits of the cgroup afterwards.
func (r resizing) resizePod(
	ctx context.Context,
	now, next allocation.Size,
	s allocation.Step,
) (allocation.Size, error) {
	cfg := r.cfg
	if err := cfg.Runtime.UpdateSandbox(ctx, r.pod, r.sandbox, podSize(next)); err != nil {
		text := fmt.Sprintf("failed to notify runtime for UpdatePodSandboxResources (resource=%s); resize rejected: "+
			// sic, as upstream's
			"updatePodSandboxResources failed for sanboxID %q: %v", s.Resource, r.sandbox, cri.Cause(err))
		return now, pod.ShowAs(text, fmt.Errorf("resize pod: %w", cri.Cause(err)))
	}
	if err := cfg.Cgroups.Resize(r.pod, s.Resource, s.Limit); err != nil {
		if back := cfg.Runtime.UpdateSandbox(ctx, r.pod, r.sandbox, podSize(now)); back != nil {
			err = errors.Join(err, fmt.Errorf("restore the limits of the sandbox: %w", cri.Cause(back)))
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

// update actuates one allocated resource of a container; the other one stays as it was actuated.
func (r resizing) update(ctx context.Context, c allocation.Change) error {
	p := r.pod
	_, granted, ok := pod.Find(p, c.Container)
	actuated := r.cfg.Allocation.Actuated(p)
	_, force, known := pod.Find(actuated, c.Container)
	if !ok || !known {
		return fmt.Errorf("resize container %s: the pod has none of that name", c.Container)
	}
	actuate := allocation.Between(force.Resources, granted.Resources, c.Resource)
	as := allocation.Resources{
		Containers: map[string]v1.ResourceRequirements{c.Container: actuate},
		Pod:        p.Spec.Resources,
	}
	if whole := actuated.Spec.Resources; whole != nil && p.Spec.Resources != nil && c.Resource == v1.ResourceMemory {
		// Pod-level resources that apply to the container are changed one by one, too; CPU comes last.
		mixed := allocation.Between(*whole, *p.Spec.Resources, c.Resource)
		as.Pod = &mixed
	}
	if err := r.cfg.Runtime.UpdateResources(ctx, as.On(p), c.Container, c.ID); err != nil {
		return pod.ShowAs(cri.Text(err), fmt.Errorf("resize container %s: %w", c.Container, cri.Cause(err)))
	}
	r.cfg.Allocation.SetActuated(p, c.Container, actuate)
	return nil
}
