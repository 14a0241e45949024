package orphan

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podsync"
)

// Pruner releases what it holds for pods that no worker has.
type Pruner interface {
	Prune(knows func(types.UID) bool)
}

// Config holds what a Finder is built from. Every field is required.
type Config struct {
	Syncer   *podsync.Syncer
	Desired  *desired.Store
	Observed *observed.Cache
	// Traces list pods of which there are directories, cgroups or logs, by what they list.
	Traces  map[string]func(knows func(types.UID) bool) ([]types.UID, error)
	Pruners []Pruner
	// OnSettled is called when all pods of earlier agents are known.
	OnSettled func()
	// RemoveDeadLinks removes symlinks to logs that are gone; live reports the logs of containers that have not ended.
	RemoveDeadLinks func(live func(log string) bool) error
	Log             *slog.Logger
}

// Finder finds what pods of earlier agents left on the node, so that workers release it.
type Finder struct{ cfg Config }

// New makes a Finder.
func New(cfg Config) *Finder { return &Finder{cfg} }

// Run adopts orphans once, when it is known which pods there are.
func (f *Finder) Run(ctx context.Context) error {
	// Workers do nothing before the runtime was listed, and terminate no pod before all sources have synced. So all pods
	// are woken after each of the two.
	for _, ready := range []<-chan struct{}{f.cfg.Observed.Synced(), f.cfg.Desired.ReadyC()} {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
		f.cfg.Syncer.WakeAll()
	}
	f.cfg.OnSettled()
	knows := f.cfg.Syncer.Knows
	f.cfg.Syncer.Adopt(f.find(knows))
	if err := f.cfg.RemoveDeadLinks(liveLogs(f.cfg.Observed)); err != nil {
		f.cfg.Log.Warn("failed to remove symlinks to logs that are gone", "err", err)
	}
	for _, p := range f.cfg.Pruners {
		p.Prune(knows)
	}
	<-ctx.Done()
	return nil
}

// find lists pods of which there are traces.
func (f *Finder) find(knows func(types.UID) bool) []types.UID {
	var all []types.UID
	for _, what := range slices.Sorted(maps.Keys(f.cfg.Traces)) {
		uids, err := f.cfg.Traces[what](knows)
		if err != nil {
			f.cfg.Log.Warn("failed to list traces of orphaned pods", "traces", what, "err", err)
		}
		all = append(all, uids...)
	}
	return all
}

// liveLogs reports the logs of containers that have not ended.
func liveLogs(o *observed.Cache) func(log string) bool {
	live := map[string]bool{}
	for _, uid := range o.UIDs() {
		have, _ := o.Get(uid)
		for _, c := range have.Containers {
			if c.State != pod.StateExited {
				live[c.LogPath] = true
			}
		}
	}
	return func(log string) bool { return live[log] }
}
