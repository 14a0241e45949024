package volume

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

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
	Health *stats.VolumeHealthStats
	Source string // how it was found out: du, statfs, a driver
}

// ErrNoStats is the answer for a volume that nothing can be told of.
var ErrNoStats = errors.New("volume has no stats")

const (
	// statsPatience is how long whoever asks for figures waits for fresh ones.
	statsPatience = time.Second
	// measurePatience bounds one measuring; a tree can be large.
	measurePatience = 2 * time.Minute
	// measuring is how many volumes of all pods are measured at once.
	measuring = 4
)

// figures are those of one volume. Guarded by Manager.mu.
type figures struct {
	have  *Measured
	at    time.Time     // of have
	tried time.Time     // when measuring last began
	done  chan struct{} // closed when the measuring under way ends; nil if none is
}

// Stats tells how full the pod's volumes are, in the order of its specification.
// Nothing is measured unless somebody asks, and no more often than every
// StatsPeriod. A volume whose file system takes its time is shown as it was
// last seen; one that was never seen is left out.
func (m *Manager) Stats(ctx context.Context, uid types.UID) []stats.VolumeStats {
	if m.cfg.StatsPeriod <= 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, statsPatience)
	defer stop()
	for _, done := range m.measure(uid) {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil || ps.spec == nil {
		return nil
	}
	var out []stats.VolumeStats
	for _, spec := range needed(ps.spec) {
		if v := ps.vols[spec.Name]; v != nil && v.figures.have != nil {
			out = append(out, v.figures.stats(claimOf(ps.spec, spec), spec.Name))
		}
	}
	return out
}

// measure begins to measure what is due, and returns what to wait for.
func (m *Manager) measure(uid types.UID) []chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if m.ctx == nil || ps == nil || ps.phase != wanted || ps.spec == nil {
		return nil
	}
	var wait []chan struct{}
	for _, v := range ps.vols {
		kind, ok := v.kind.(Measurer)
		if !ok || !v.ready {
			continue
		}
		if v.figures.done == nil && time.Since(v.figures.tried) >= m.cfg.StatsPeriod {
			v.figures.tried, v.figures.done = time.Now(), make(chan struct{})
			ctx, r, have := ps.ctx, m.requestLocked(uid, ps, v), v.have // releasing ends it
			m.wg.Go(func() { m.measureOne(ctx, kind, r, have, v) })
		}
		if v.figures.done != nil {
			wait = append(wait, v.figures.done)
		}
	}
	return wait
}

func (m *Manager) measureOne(ctx context.Context, kind Measurer, r Request, ready Ready, v *vol) {
	ctx, stop := context.WithTimeout(ctx, measurePatience)
	defer stop()
	var have Measured
	var err error
	began := time.Now()
	select {
	case m.measuring <- struct{}{}:
		began = time.Now()
		have, err = kind.Measure(ctx, r, ready)
		<-m.measuring
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		m.metrics.measured(have.Source, time.Since(began))
	} else if ctx.Err() == nil && !errors.Is(err, ErrNoStats) {
		m.cfg.Log.Warn("cannot measure volume", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "uid", r.UID, "volume", r.Name, "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		v.figures.have, v.figures.at = &have, time.Now()
	}
	close(v.figures.done)
	v.figures.done = nil
}

func (f *figures) stats(claim, name string) stats.VolumeStats {
	u := f.have.Usage
	out := stats.VolumeStats{Name: name, VolumeHealthStats: f.have.Health, FsStats: stats.FsStats{Time: metav1.NewTime(f.at),
		AvailableBytes: &u.Available, CapacityBytes: &u.Capacity, UsedBytes: &u.Used,
		InodesFree: &u.InodesFree, Inodes: &u.Inodes, InodesUsed: &u.InodesUsed}}
	if namespace, name, ok := strings.Cut(claim, "/"); ok {
		out.PVCRef = &stats.PVCReference{Namespace: namespace, Name: name}
	}
	return out
}

// claimOf is the namespace and name of the claim that a volume stands for, or
// nothing.
func claimOf(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return p.Namespace + "/" + v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Namespace + "/" + p.Name + "-" + v.Name
	}
	return ""
}

// claims lists the pods that have volumes of claims.
func (m *Manager) claims() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for uid, ps := range m.pods {
		if ps.phase == wanted && ps.spec != nil && slices.ContainsFunc(needed(ps.spec), func(v *v1.Volume) bool { return claimOf(ps.spec, v) != "" }) {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}
