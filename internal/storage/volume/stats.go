package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

// A Measurer is a Kind that can tell how full its volumes are.
type Measurer interface {
	// Measure looks at a volume that is ready, as Prepare left it. It must return
	// soon after ctx ended. A volume that cannot be measured is ErrNoStats.
	Measure(ctx context.Context, r Request, have Ready) (Measured, error)
}

// Measured is how full a volume is, and how it is if its driver can tell.
type Measured struct {
	mount.Usage
	Health *Health // nil: nobody watches it
	Source string  // how it was found out: du, statfs, a driver
}

// Health is how a volume's driver finds it.
type Health struct {
	Abnormal bool
	Message  string
}

// ErrNoStats is the answer for a volume that nothing can be told of.
var ErrNoStats = errors.New("volume has no stats")

// Figures are what a volume was seen to hold.
type Figures struct {
	Volume string // as the pod calls it
	Claim  string // the claim that it stands for, in the pod's namespace; empty without one
	// Local volumes are on the node's disk and count as the pod's own storage.
	Local bool
	At    time.Time
	Measured
}

const (
	// statsPatience is how long whoever asks for figures waits for fresh ones. A
	// measuring that takes longer is slow.
	statsPatience = time.Second
	// measurePatience bounds one measuring; a tree can be large.
	measurePatience = 2 * time.Minute
	// measuring is how many volumes of all pods are measured at once, and how many
	// slow ones besides.
	measuring = 4
)

// lanes bound how many volumes are measured at once. What was slow has a lane of
// its own, so that file systems which hang are measured one after the other and
// all others as ever.
type lanes struct{ quick, slow chan struct{} }

func newLanes() lanes {
	return lanes{make(chan struct{}, measuring), make(chan struct{}, measuring)}
}

// figures are those of one volume. Guarded by Manager.mu.
type figures struct {
	have  *Measured
	at    time.Time     // of have
	tried time.Time     // when measuring last began
	done  chan struct{} // closed when the measuring under way ends; nil if none is
	slow  bool          // the last measuring took long
}

// Refresh has the volumes of all pods measured that were not within StatsPeriod,
// and returns when that is done, at most a second later. Slow volumes are measured
// too, and not waited for. Nothing is measured unless somebody asks.
func (m *Manager) Refresh(ctx context.Context) { m.refresh(ctx, m.cfg.StatsPeriod, allPods) }

// RefreshOlder is Refresh for figures that must not be older than age, where
// something depends on them. What StatsPeriod switches off stays off.
func (m *Manager) RefreshOlder(ctx context.Context, age time.Duration) {
	m.refresh(ctx, min(age, m.cfg.StatsPeriod), allPods)
}

func allPods(*volumes) bool { return true }

func (m *Manager) refresh(ctx context.Context, age time.Duration, of func(*volumes) bool) {
	if m.cfg.StatsPeriod <= 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, statsPatience)
	defer stop()
	m.mu.Lock()
	var wait []chan struct{}
	for uid, ps := range m.pods {
		if ps.phase == wanted && ps.spec != nil && of(ps) {
			wait = append(wait, m.measureLocked(uid, ps, age)...)
		}
	}
	m.mu.Unlock()
	for _, done := range wait {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// Stats tells how full the pod's volumes were when they were last measured, in the
// order of its specification; those that never were are left out. It never blocks:
// [Manager.Refresh] has figures made.
func (m *Manager) Stats(uid types.UID) []Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil || ps.phase != wanted || ps.spec == nil {
		return nil
	}
	return ps.figuresLocked()
}

func (ps *volumes) figuresLocked() []Figures {
	var out []Figures
	for _, spec := range needed(ps.spec) {
		if v := ps.vols[spec.Name]; v != nil && v.figures.have != nil {
			out = append(out, Figures{Volume: spec.Name, Claim: claimOf(ps.spec, spec), Local: isLocal(spec), At: v.figures.at, Measured: *v.figures.have})
		}
	}
	return out
}

// measureLocked begins to measure what was not within age, and returns what to wait
// for.
func (m *Manager) measureLocked(uid types.UID, ps *volumes, age time.Duration) []chan struct{} {
	if m.ctx == nil {
		return nil
	}
	var wait []chan struct{}
	for _, v := range ps.vols {
		kind, ok := v.kind.(Measurer)
		if !ok || !v.ready {
			continue
		}
		f := &v.figures
		if f.done == nil && time.Since(f.tried) >= age {
			f.tried, f.done = time.Now(), make(chan struct{})
			ctx, r, have, slow := ps.ctx, m.requestLocked(uid, ps, v), v.have, f.slow // releasing ends it
			m.wg.Go(func() { m.measureOne(ctx, kind, r, have, v, slow) })
		}
		if f.done != nil && !f.slow {
			wait = append(wait, f.done)
		}
	}
	return wait
}

func (m *Manager) measureOne(ctx context.Context, kind Measurer, r Request, ready Ready, v *vol, slow bool) {
	ctx, stop := context.WithTimeout(ctx, measurePatience)
	defer stop()
	lane := m.lanes.quick
	if slow {
		lane = m.lanes.slow
	}
	var have Measured
	var err error
	took := time.Duration(0)
	select {
	case lane <- struct{}{}:
		leave := sync.OnceFunc(func() { <-lane })
		late := panics.After(m.cfg.Log, "volumes", statsPatience, func() {
			m.mu.Lock()
			v.figures.slow = true
			m.mu.Unlock()
			if !slow {
				leave()
			}
		})
		began := time.Now()
		err = panics.Try(m.cfg.Log, "volumes", func() (err error) {
			have, err = kind.Measure(ctx, r, ready)
			return err
		})
		took = time.Since(began)
		late.Stop()
		leave()
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case err == nil:
		m.metrics.measured(have.Source, took)
	case errors.Is(err, ErrNoStats), errors.Is(ctx.Err(), context.Canceled), slow && ctx.Err() != nil: // it was said before
	default:
		m.cfg.Log.Warn("cannot measure volume", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "uid", r.UID, "volume", r.Name, "err", err)
	}
	m.mu.Lock()
	before := v.figures.have
	if err == nil {
		v.figures.have, v.figures.at, v.figures.slow = &have, time.Now(), took >= statsPatience
	}
	close(v.figures.done)
	v.figures.done = nil
	m.mu.Unlock()
	if h := have.Health; err == nil && h != nil && h.Abnormal && (before == nil || before.Health == nil || *before.Health != *h) {
		m.cfg.Events.Pod(r.Pod, "", v1.EventTypeWarning, pod.EventVolumeAbnormal, fmt.Sprintf("Volume %s: %s", r.Name, h.Message))
	}
}

// isLocal reports whether what is in the volume takes of the node's disk and goes
// with the pod.
func isLocal(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil
}

// claimOf names the claim that a volume stands for, or nothing.
func claimOf(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}
