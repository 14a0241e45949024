package cgroup

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// PodsConfig holds what Pods are built from. Fields are required unless their comment says otherwise.
type PodsConfig struct {
	Tree *Tree // nil: no cgroups per pod, all calls do nothing
	// Account lists the pods that use the node, with their allocated resources.
	Account func() []*v1.Pod
	Log     *slog.Logger
}

// Pods manages the cgroups of pods, and updates the CPU weight of the burstable class when its pods change. It is
// safe for concurrent use, but calls for one pod must not be concurrent.
type Pods struct {
	cfg  PodsConfig
	tree *Tree

	mu        sync.Mutex
	burstable map[types.UID]*v1.Pod
	// whole is set when burstable has all pods. Before that, the weight is only raised: the weight that an earlier
	// agent has written includes the pods that are missing from it.
	whole bool
}

// NewPods makes Pods. Nothing is written before Run and the other calls.
func NewPods(cfg PodsConfig) *Pods {
	return &Pods{cfg: cfg, tree: cfg.Tree, burstable: map[types.UID]*v1.Pod{}}
}

// countEvery is how often the burstable pods are counted again, and the weight is written again.
const countEvery = time.Minute

// Run counts all burstable pods at once, and then every minute until ctx ends, because another program may have
// changed the weight. It must be started when all pods are known. Pods that are not admitted yet are counted a
// minute later.
func (c *Pods) Run(ctx context.Context) error {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for whole := false; ; whole = true {
		if err := c.recount(whole); err != nil {
			c.cfg.Log.Warn("failed to update cgroups of QoS classes", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *Pods) recount(whole bool) error {
	all := c.cfg.Account()
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
		return c.tree.RaiseQoS(c.requested())
	}
	return c.tree.RefreshQoS(c.requested())
}

// requested is the CPU that the burstable pods request together.
func (c *Pods) requested() int64 {
	return BurstableCPU(slices.Collect(maps.Values(c.burstable)))
}

// MakePod makes the cgroup of a pod that starts.
func (c *Pods) MakePod(_ context.Context, p *v1.Pod) error {
	return c.make(p, (*Tree).MakePod)
}

// EnsurePod makes what is missing of the pod's cgroup.
func (c *Pods) EnsurePod(_ context.Context, p *v1.Pod) error {
	return c.make(p, (*Tree).EnsurePod)
}

func (c *Pods) make(p *v1.Pod, how func(*Tree, *v1.Pod) error) error {
	if c.tree == nil {
		return nil
	}
	if err := c.count(p.UID, p); err != nil {
		return err
	}
	return how(c.tree, p)
}

// RemovePod removes the pod's cgroup.
func (c *Pods) RemovePod(ctx context.Context, uid types.UID) error {
	if c.tree == nil {
		return nil
	}
	if err := c.tree.RemovePod(ctx, uid); err != nil {
		return err
	}
	return c.count(uid, nil)
}

// ReducePod sets the CPU weight of a terminated pod to the minimum, until its cgroup is removed.
func (c *Pods) ReducePod(uid types.UID) error {
	if c.tree == nil {
		return nil
	}
	return c.tree.ReducePod(uid)
}

// Gone reports whether nothing is left of the pod's cgroup.
func (c *Pods) Gone(p *v1.Pod) bool { return c.tree != nil && c.tree.Gone(p.UID) }

// Size returns the current size of the pod's cgroup, and the size that p requires. Without cgroups per pod both
// are zero. A pod whose cgroup an earlier agent has made is counted with this call.
func (c *Pods) Size(p *v1.Pod) (now, next Size, err error) {
	if c.tree == nil {
		return now, next, nil
	}
	now, next, err = c.tree.Size(p)
	if err == nil && !c.knows(p.UID) {
		err = c.count(p.UID, p)
	}
	return now, next, err
}

// Resize writes one value of the pod's cgroup, and the weight of the burstable class with it.
func (c *Pods) Resize(p *v1.Pod, res v1.ResourceName, limit bool) error {
	if err := c.tree.Resize(p, res, limit); err != nil {
		return err
	}
	if res == v1.ResourceCPU && !limit {
		return c.count(p.UID, p)
	}
	return nil
}

// MemoryUsage is the memory in the pod's cgroup.
func (c *Pods) MemoryUsage(p *v1.Pod) (int64, error) { return c.tree.MemoryUsage(p) }

func (c *Pods) knows(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.burstable[uid] != nil
}

// count adds a pod to the burstable pods, or removes it: p is nil then.
func (c *Pods) count(uid types.UID, p *v1.Pod) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had := c.burstable[uid]
	has := p != nil && pod.QOS(p) == v1.PodQOSBurstable
	switch {
	case has == had && (!has || BurstableCPU([]*v1.Pod{old}) == BurstableCPU([]*v1.Pod{p})):
		return nil
	case has:
		c.burstable[uid] = p
	default:
		delete(c.burstable, uid)
	}
	if !c.whole {
		return c.tree.RaiseQoS(c.requested())
	}
	return c.tree.UpdateQoS(c.requested())
}
