package podsync

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/podplan"
)

// holdings are what the pod has released so far.
type holdings struct {
	claimsAsked  bool // to be unprepared
	volumesAsked bool // to be unmounted
	resources    bool
	objects      bool
	reduced      bool // its cgroup has the least CPU
	cgroup       bool
	directories  bool
	volumeErr    string // why volumes cannot be unmounted, as it was last logged
}

// facts are what the pod still holds. Claims and volumes count as held until their release was requested: those of an
// earlier agent may not be known before.
func (h *holdings) facts(cfg *Config, uid types.UID) podplan.Holdings {
	held := podplan.Holdings{
		Claims:      true,
		Resources:   !h.resources,
		Volumes:     true,
		Objects:     !h.objects,
		Cgroup:      !h.cgroup,
		CgroupFull:  !h.reduced,
		Directories: !h.directories,
	}
	if h.claimsAsked {
		done, _ := cfg.Claims.Released(uid)
		held.Claims = !done
	}
	if h.volumesAsked {
		done, err := cfg.Volumes.Released(uid)
		held.Volumes, held.VolumesFail = !done, err != nil
	}
	return held
}

// release takes one of the steps of a release that only send a request to another part, and reports whether it has
// changed what the pod holds.
func (w *worker) release(verb podplan.Verb, in *podplan.Input) (changed bool) {
	cfg, before := &w.s.cfg, in.Held
	switch verb {
	case podplan.UnprepareClaims:
		cfg.Claims.Release(w.ref(in.Have))
		w.holdings.claimsAsked = true
	case podplan.UnmountVolumes:
		cfg.Volumes.Release(w.ref(in.Have))
		w.holdings.volumesAsked = true
		w.logVolumes()
	case podplan.UnregisterObjects:
		cfg.Objects.Unregister(w.uid)
		w.holdings.objects = true
	}
	in.Held = w.holdings.facts(cfg, w.uid)
	return in.Held != before
}

// logVolumes logs why volumes cannot be unmounted, once for each reason.
func (w *worker) logVolumes() {
	_, err := w.s.cfg.Volumes.Released(w.uid)
	if err != nil && err.Error() != w.holdings.volumeErr {
		w.holdings.volumeErr = err.Error()
		w.log.Warn("failed to unmount volumes", "err", err)
	}
}

// releaseTask returns the work of the other steps of a release; nil for any other step.
func (do performer) releaseTask(verb podplan.Verb) work {
	cfg, uid, ref := &do.w.s.cfg, do.w.uid, do.w.ref(do.in.Have)
	var f func(context.Context) error
	switch verb {
	case podplan.ReleaseResources:
		f = func(context.Context) error {
			cfg.Resources.Release(uid) // before Vacate, after which other pods may get them
			cfg.Allocation.Vacate(uid)
			return nil
		}
	case podplan.ReduceCgroup:
		f = func(context.Context) error { return cfg.Cgroups.ReducePod(uid) }
	case podplan.RemoveCgroup:
		f = func(ctx context.Context) error { return cfg.Cgroups.RemovePod(ctx, uid) }
	case podplan.RemoveDirectories:
		f = func(ctx context.Context) error {
			cfg.Resources.Release(uid) // again, if that could not be saved before
			return cfg.Disk.Remove(ctx, ref)
		}
	default:
		return nil
	}
	return func(ctx context.Context) (result, error) {
		if err := f(ctx); err != nil {
			return result{}, err
		}
		return result{outcome: releasedStep(verb)}, nil
	}
}

// releasedStep is the outcome of a step of a release.
type releasedStep podplan.Verb

func (r releasedStep) apply(w *worker) {
	switch podplan.Verb(r) {
	case podplan.ReleaseResources:
		w.holdings.resources = true
	case podplan.ReduceCgroup:
		w.holdings.reduced = true
	case podplan.RemoveCgroup:
		w.holdings.cgroup = true
	case podplan.RemoveDirectories:
		w.holdings.directories = true
	}
}
