package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

// Measurer is a Kind whose volumes can be measured.
type Measurer interface {
	// Measure measures a ready volume. It must return soon after ctx ends. It returns ErrNoStats
	// for a volume that cannot be measured.
	Measure(ctx context.Context, r Request, have Ready) (Measured, error)
}

// Measured is the usage of a volume, and its health if the driver reports it.
type Measured struct {
	mount.Usage
	Health *Health // nil: not monitored
	Source string  // the source of the figures: du, statfs, or a driver
}

// Health is the volume condition that the driver reports.
type Health struct {
	Abnormal bool
	Message  string
}

// ErrNoStats is the error for a volume that has no stats.
var ErrNoStats = errors.New("volume has no stats")

// Figures are the figures of the last measurement of a volume.
type Figures struct {
	Volume string // the pod's name for it
	Claim  string // name of the claim in the pod's namespace; empty without one
	// Local volumes are on the node's disk and count as ephemeral storage of the pod.
	Local bool
	At    time.Time
	Measured
}

const (
	// statsTimeout is how long callers wait for new figures. A measurement that takes longer is
	// slow.
	statsTimeout = time.Second
	// measureTimeout bounds one measurement. A tree can be large.
	measureTimeout = 2 * time.Minute
	// maxMeasurements is the number of concurrent measurements, and of slow ones in addition.
	maxMeasurements = 4
)

// lanes bound concurrent measurements. Slow volumes have a lane of their own, so that file systems
// which hang do not delay others.
type lanes struct{ quick, slow chan struct{} }

func newLanes() lanes {
	return lanes{make(chan struct{}, maxMeasurements), make(chan struct{}, maxMeasurements)}
}

// figures are the figures of one volume. Guarded by Manager.mu.
type figures struct {
	have  *Measured
	at    time.Time     // time of have
	tried time.Time     // start of the last measurement
	done  chan struct{} // closed when the current measurement ends; nil if none
	slow  bool          // the last measurement was slow
}

// Refresh measures the volumes of all pods that were not measured within StatsPeriod, and returns
// when they are done, after a second at most. Slow volumes are measured but not waited for. There
// are no measurements without callers.
func (m *Manager) Refresh(ctx context.Context) { m.refresh(ctx, m.cfg.StatsPeriod, allPods) }

// RefreshOlder is Refresh for figures not older than age, for decisions that depend on them. A
// disabled StatsPeriod disables it as well.
func (m *Manager) RefreshOlder(ctx context.Context, age time.Duration) {
	m.refresh(ctx, min(age, m.cfg.StatsPeriod), allPods)
}

func allPods(*volumes) bool { return true }

func (m *Manager) refresh(ctx context.Context, age time.Duration, of func(*volumes) bool) {
	if m.cfg.StatsPeriod <= 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, statsTimeout)
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

// Stats returns the figures of the pod's volumes in the order of its specification, without those
// never measured. It never blocks; [Manager.Refresh] makes measurements.
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
			out = append(out, Figures{
				Volume:   spec.Name,
				Claim:    claimOf(ps.spec, spec),
				Local:    isLocal(spec),
				At:       v.figures.at,
				Measured: *v.figures.have,
			})
		}
	}
	return out
}

// measureLocked starts the measurements of volumes not measured within age, and returns what to
// wait for.
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
			ctx, r, have, slow := ps.ctx, m.requestLocked(uid, ps, v), v.have, f.slow // cancelled by a release
			m.wg.Go(func() { m.measureOne(ctx, kind, r, have, v, slow) })
		}
		if f.done != nil && !f.slow {
			wait = append(wait, f.done)
		}
	}
	return wait
}

func (m *Manager) measureOne(ctx context.Context, kind Measurer, r Request, ready Ready, v *vol, slow bool) {
	ctx, stop := context.WithTimeout(ctx, measureTimeout)
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
		late := panics.After(m.cfg.Log, part, statsTimeout, func() {
			m.mu.Lock()
			v.figures.slow = true
			m.mu.Unlock()
			if !slow {
				leave()
			}
		})
		began := time.Now()
		err = panics.Try(m.cfg.Log, part, func() (err error) {
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
	case errors.Is(err, ErrNoStats), errors.Is(ctx.Err(), context.Canceled), slow && ctx.Err() != nil:
		// There are no stats, the measurement was cancelled, or the first timeout of the volume was logged.
	default:
		m.cfg.Log.Warn("failed to measure volume", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "podUID", r.UID, "volumeName",
			r.Name, "err", err)
	}
	m.mu.Lock()
	before := v.figures.have
	if err == nil {
		v.figures.have, v.figures.at, v.figures.slow = &have, time.Now(), took >= statsTimeout
	}
	close(v.figures.done)
	v.figures.done = nil
	m.mu.Unlock()
	if h := have.Health; err == nil && h != nil && h.Abnormal &&
		(before == nil || before.Health == nil || *before.Health != *h) {
		m.cfg.Events.Pod(r.Pod, "", v1.EventTypeWarning, pod.EventVolumeAbnormal,
			fmt.Sprintf("Volume %s: %s", r.Name, h.Message))
	}
}

// isLocal reports whether the volume's content is on the node's disk and removed with the pod.
func isLocal(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil
}

// claimOf returns the name of the volume's claim, "" if it has none.
func claimOf(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}
