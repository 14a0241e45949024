package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/node/apiclient"
	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/probe"
	"keelson/internal/pods/status"
	"keelson/internal/resources/cgroup"
	"keelson/internal/resources/userns"
	"keelson/internal/runtime/cri"
)

// statusAPI is the writer's way to the API server.
type statusAPI struct{ apiclient.Pods }

func (a statusAPI) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	return a.Patch(ctx, namespace, name, types.StrategicMergePatchType, patch, "status")
}

// probes shows probe results as statuses want them.
type probes struct{ *probe.Prober }

func (p probes) Result(spec *v1.Pod, c pod.Container) status.Probe {
	r := p.Prober.Result(spec, c)
	return status.Probe{Started: r.Started, Ready: r.Ready, StartupFailed: r.StartupFailed, LivenessFailed: r.LivenessFailed}
}

// executor runs probe commands through the runtime.
type executor struct{ runtime *cri.Client }

func (e executor) Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, int32, bool, error) {
	seconds := int64((timeout + time.Second - 1) / time.Second)
	resp, err := e.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: seconds})
	if cri.IsTimeout(err) {
		return nil, 0, true, nil
	}
	if err != nil {
		return nil, 0, false, cri.Cause(err)
	}
	return append(resp.Stdout, resp.Stderr...), resp.ExitCode, false, nil
}

// cgroups keeps pods' cgroups, and what the burstable ones are worth together in
// step with which of them there are.
type cgroups struct {
	tree    *cgroup.Tree // nil: no cgroups per pod, nothing is done
	users   *userns.Allocator
	account func() []*v1.Pod // which take up the node, with what they were granted
	log     *slog.Logger

	mu        sync.Mutex
	burstable map[types.UID]*v1.Pod
	// whole says that burstable has all pods. Until then those that it lacks are worth
	// what an agent before this one has told the kernel, which is not taken from them.
	whole bool
}

// countEvery is how often the account is made anew, and what the kernel has of it
// written again.
const countEvery = time.Minute

// Run makes the account of all pods now, and once a minute: somebody else may have
// written over what they are worth together. It is meant to begin when all pods are
// known; those that have yet to be judged are in it a minute later.
func (c *cgroups) Run(ctx context.Context) error {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for whole := false; ; whole = true {
		if err := c.recount(whole); err != nil {
			c.log.Warn("cannot tell the kernel what classes of pods are worth", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *cgroups) recount(whole bool) error {
	all := c.account()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = whole
	clear(c.burstable)
	for _, p := range all {
		if pod.QOS(p) == v1.PodQOSBurstable {
			c.burstable[p.UID] = p
		}
	}
	if !whole {
		return c.tree.RaiseQoS(c.worth())
	}
	return c.tree.RefreshQoS(c.worth())
}

// worth is the CPU that the burstable pods ask for together.
func (c *cgroups) worth() int64 {
	return cgroup.BurstableCPU(slices.Collect(maps.Values(c.burstable)))
}

// MakePod makes the cgroup of a pod that begins.
func (c *cgroups) MakePod(_ context.Context, p *v1.Pod) error {
	return c.make(p, (*cgroup.Tree).MakePod)
}

// EnsurePod makes what is missing of the pod's cgroup.
func (c *cgroups) EnsurePod(_ context.Context, p *v1.Pod) error {
	return c.make(p, (*cgroup.Tree).EnsurePod)
}

func (c *cgroups) make(p *v1.Pod, how func(*cgroup.Tree, *v1.Pod) error) error {
	if c.tree == nil {
		return nil
	}
	if err := c.count(p.UID, p); err != nil {
		return err
	}
	return how(c.tree, p)
}

// RemovePod removes the pod's cgroup, and then gives back the IDs of its users,
// whom nothing runs as any more.
func (c *cgroups) RemovePod(ctx context.Context, uid types.UID) error {
	if err := c.removePod(ctx, uid); err != nil {
		return err
	}
	return c.users.Release(uid)
}

func (c *cgroups) removePod(ctx context.Context, uid types.UID) error {
	if c.tree == nil {
		return nil
	}
	if err := c.tree.RemovePod(ctx, uid); err != nil {
		return err
	}
	return c.count(uid, nil)
}

// ReducePod leaves a pod that is over with the least CPU, until its cgroup can go.
func (c *cgroups) ReducePod(uid types.UID) error {
	if c.tree == nil {
		return nil
	}
	return c.tree.ReducePod(uid)
}

// Gone reports whether nothing is left of the pod's cgroup.
func (c *cgroups) Gone(p *v1.Pod) bool { return c.tree != nil && c.tree.Gone(p.UID) }

// Size is how much the pod's cgroup allows, and how much p asks it to. Without
// cgroups per pod there is nothing to write. A pod of which an earlier agent has made
// the cgroup is taken into account with it.
func (c *cgroups) Size(p *v1.Pod) (now, next allocation.Size, err error) {
	if c.tree == nil {
		return now, next, nil
	}
	n, x, err := c.tree.Size(p)
	if err == nil && !c.knows(p.UID) {
		err = c.count(p.UID, p)
	}
	return allocation.Size(n), allocation.Size(x), err
}

// Resize writes one value of the pod's cgroup, and what the burstable pods are
// worth with it.
func (c *cgroups) Resize(p *v1.Pod, res v1.ResourceName, limit bool) error {
	if err := c.tree.Resize(p, res, limit); err != nil {
		return err
	}
	if res == v1.ResourceCPU && !limit {
		return c.count(p.UID, p)
	}
	return nil
}

func (c *cgroups) MemoryUsage(p *v1.Pod) (int64, error) { return c.tree.MemoryUsage(p) }

func (c *cgroups) knows(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.burstable[uid] != nil
}

// count takes a pod into the account of burstable pods, or out of it.
func (c *cgroups) count(uid types.UID, p *v1.Pod) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had := c.burstable[uid]
	has := p != nil && pod.QOS(p) == v1.PodQOSBurstable
	switch {
	case has == had && (!has || cgroup.BurstableCPU([]*v1.Pod{old}) == cgroup.BurstableCPU([]*v1.Pod{p})):
		return nil
	case has:
		c.burstable[uid] = p
	default:
		delete(c.burstable, uid)
	}
	if !c.whole {
		return c.tree.RaiseQoS(c.worth())
	}
	return c.tree.UpdateQoS(c.worth())
}
