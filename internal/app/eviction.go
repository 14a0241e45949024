package app

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podsync"
	"keelson/internal/resources/eviction"
	"keelson/internal/resources/machine"
)

// discardPatience is how long the removal of ended containers is waited for while the
// node is short of disk.
const discardPatience = 30 * time.Second

// events records what happens.
type events interface {
	pod.Events
	Annotated(p *v1.Pod, annotations map[string]string, eventType, reason, message string)
}

// readThresholds reads what must be left before pods are ended.
func (a *agent) readThresholds() error {
	k := &a.cfg.Kubelet
	ts, ignored, err := eviction.Parse(eviction.Settings{Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGrace: k.EvictionSoftGracePeriod,
		MinimumReclaim: k.EvictionMinimumReclaim,
		Enforced:       a.cgroups != nil && slices.Contains(k.EnforceNodeAllocatable, "pods") && !a.cfg.Flags.IgnoreEviction})
	if err != nil {
		return err
	}
	for _, s := range ignored {
		a.log.Error("a threshold that cannot be set is ignored: it follows from that of the file system on which the writable layers are", "signal", s)
	}
	a.thresholds = ts
	return nil
}

// keptFromEviction returns the hard eviction thresholds, which are subtracted from allocatable; nothing if that is
// switched off.
func (a *agent) keptFromEviction(capacity v1.ResourceList) v1.ResourceList {
	if a.cfg.Flags.IgnoreEviction {
		return nil
	}
	return eviction.Reserve(a.thresholds, capacity)
}

// buildEviction builds what keeps the node alive when it runs out of something.
func (a *agent) buildEviction(context.Context) error {
	a.buildStats()
	k := &a.cfg.Kubelet
	gauges := a.links.Gauges
	if gauges == nil {
		gauges = eviction.NewMachine(eviction.MachineConfig{Stats: a.stats, Runtime: a.runtime, Host: machine.Host(), RootDir: a.cfg.Flags.RootDir,
			MaxPIDs: a.machine.MaxPIDs, SeparateContainers: a.cfg.Gates.Enabled("KubeletSeparateDiskGC"), Remeasure: a.volumes.RefreshOlder,
			Local: a.localVolumes, Log: a.log})
	}
	var err error
	a.evictor, err = eviction.New(eviction.Config{Thresholds: a.thresholds, Hold: k.EvictionPressureTransitionPeriod.Duration,
		MaxPodGrace: time.Duration(k.EvictionMaxPodGracePeriod) * time.Second, Limits: *k.LocalStorageCapacityIsolation,
		Source: gauges, After: []<-chan struct{}{a.node.RuntimeUp(), a.observed.Synced()}, Pods: a.allocation.Account,
		Evict: func(uid types.UID, o eviction.Order) <-chan struct{} {
			return a.syncer.Evict(uid, podsync.Eviction{Grace: o.Grace, AtOnce: o.AtOnce, Message: o.Message, Disrupts: o.Disrupts})
		},
		RemoveEnded: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, discardPatience)
			defer cancel()
			return a.syncer.Discard(ctx)
		},
		RemoveImages: func(ctx context.Context) error {
			_, err := a.imageGC.DeleteUnused(ctx)
			return err
		},
		OnChange: a.node.Poke, Events: a.events, Registry: a.metrics, Log: a.log, Now: time.Now})
	return err
}

// localVolumes are the volumes of a pod that take of the node's disk.
func (a *agent) localVolumes(uid types.UID) map[string]bool {
	out := map[string]bool{}
	for _, f := range a.volumes.Stats(uid) {
		out[f.Volume] = f.Local
	}
	return out
}
