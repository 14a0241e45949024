package volume

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/storage/mount"
)

// Operation names in metrics.
const (
	opMount   = "volume_mount"
	opUnmount = "volume_unmount"
	opMap     = "map_volume" // of a block volume
	opUnmap   = "unmap_volume"
	opResize  = "volume_fs_resize" // online expansion
	// opAttached is the check whether the volume is attached, counted also for volumes that need
	// not be.
	opAttached = "verify_controller_attached_volume"
	// opOverall is the time from the first request until the volume is ready.
	opOverall = "overall_volume_mount"

	succeeded = "success"
	failed    = "fail-unknown"
)

// metrics are the Manager's counters and histograms. Gauges are computed when scraped.
type metrics struct {
	duration *prometheus.HistogramVec
	overall  *prometheus.HistogramVec
	measure  *prometheus.HistogramVec
	counters struct {
		found, foundFailed, forced, forcedFailed prometheus.Counter
	}
	orphans, orphansFailed prometheus.Gauge
}

func newMetrics() *metrics {
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "storage_operation_duration_seconds",
			Help:    "Storage operation duration",
			Buckets: buckets,
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
		overall: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "volume_operation_total_seconds",
			Help:    "Storage operation end to end duration in seconds",
			Buckets: buckets,
		}, []string{"plugin_name", "operation_name"}),
		measure: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_volume_metric_collection_duration_seconds",
			Help:    "Duration in seconds to calculate volume stats",
			Buckets: prometheus.DefBuckets,
		}, []string{"metric_source"}),
		orphans: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_orphan_pod_cleaned_volumes",
			Help: "Cumulative number of orphaned pods whose volumes were cleaned up",
		}),
		orphansFailed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_orphan_pod_cleaned_volumes_errors",
			Help: "Cumulative number of failed cleanups of orphaned pods' volumes",
		}),
	}
	m.counters.found = counter("reconstruct_volume_operations_total",
		"Number of volumes found on disk at startup, for which reconstruction is attempted")
	m.counters.foundFailed = counter("reconstruct_volume_operations_errors_total",
		"Number of volumes found on disk at startup whose kind is not supported")
	m.counters.forced = counter("force_cleaned_failed_volume_operations_total",
		"Cumulative number of forced cleanups of volumes whose kind is not supported")
	m.counters.forcedFailed = counter("force_cleaned_failed_volume_operation_errors_total",
		"Cumulative number of failed forced cleanups of volumes whose kind is not supported")
	return m
}

func (m *metrics) all() []prometheus.Collector {
	c := &m.counters
	return []prometheus.Collector{m.duration, m.overall, m.measure, m.orphans, m.orphansFailed, c.found, c.foundFailed,
		c.forced, c.forcedFailed}
}

// did counts one operation on one volume.
func (m *metrics) did(plugin string, migrated bool, operation string, took time.Duration, err error) {
	status := succeeded
	if err != nil {
		status = failed
	}
	m.duration.WithLabelValues(plugin, operation, status, strconv.FormatBool(migrated)).Observe(took.Seconds())
}

// tried counts an attempt to prepare a volume: the attachment check, until it succeeds, and the
// mount or map. An attempt that failed before the check is not counted. For a volume left by an
// earlier agent no check is counted.
func (m *metrics) tried(v *vol, have Ready, left bool, took time.Duration, err error) {
	plugin := cmp.Or(have.Counted, v.kind.Plugin())
	var waits *Waiting
	switch early := premature(err); {
	case early && errors.As(err, &waits) && waits.Attach:
		m.did(plugin, have.Migrated, opAttached, took, err)
	case !early && !v.attached:
		v.attached = true
		if !left {
			m.did(plugin, have.Migrated, opAttached, 0, nil)
		}
		fallthrough
	case !early:
		switch have.Did {
		case Mounted:
			m.did(plugin, have.Migrated, opMount, took, err)
		case Mapped:
			m.did(plugin, have.Migrated, opMap, took, err)
		case Resized:
			m.did(plugin, have.Migrated, opResize, took, err)
		}
	}
}

// Names of operations to count with [Manager.Count].
const (
	OpUnmountDevice = "unmount_device"
	OpUnmapDevice   = "unmap_device"
)

// Count counts an operation on a staged volume.
func (m *Manager) Count(plugin string, migrated bool, operation string, took time.Duration, err error) {
	m.metrics.did(plugin, migrated, operation, took, err)
}

func (m *metrics) arrived(plugin string, took time.Duration) {
	m.overall.WithLabelValues(plugin, opOverall).Observe(took.Seconds())
}

func (m *metrics) measured(source string, took time.Duration) {
	m.measure.WithLabelValues(source).Observe(took.Seconds())
}

var totalVolumes = prometheus.NewDesc("volume_manager_total_volumes", "Number of volumes in Volume Manager",
	[]string{"plugin_name", "state"}, nil)

// Gauges of volumes of PersistentVolumeClaims.
var (
	claimLabels = []string{"namespace", "persistentvolumeclaim"}
	claimGauges = []struct {
		desc *prometheus.Desc
		of   func(u *mount.Usage) uint64
	}{
		{claimDesc("capacity_bytes", "Capacity in bytes of the volume"),
			func(u *mount.Usage) uint64 { return u.Capacity }},
		{
			claimDesc("available_bytes", "Number of available bytes in the volume"),
			func(u *mount.Usage) uint64 { return u.Available },
		},
		{claimDesc("used_bytes", "Number of used bytes in the volume"), func(u *mount.Usage) uint64 { return u.Used }},
		{claimDesc("inodes", "Maximum number of inodes in the volume"),
			func(u *mount.Usage) uint64 { return u.Inodes }},
		{
			claimDesc("inodes_free", "Number of free inodes in the volume"),
			func(u *mount.Usage) uint64 { return u.InodesFree },
		},
		{
			claimDesc("inodes_used", "Number of used inodes in the volume"),
			func(u *mount.Usage) uint64 { return u.InodesUsed },
		},
	}
	claimAbnormal = claimDesc("health_status_abnormal",
		"Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates "+
			"volume is healthy")
)

func claimDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, claimLabels, nil)
}

// Describe implements [prometheus.Collector].
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.metrics.all() {
		c.Describe(ch)
	}
	ch <- totalVolumes
	for _, g := range claimGauges {
		ch <- g.desc
	}
	ch <- claimAbnormal
}

// Collect implements [prometheus.Collector].
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.metrics.all() {
		c.Collect(ch)
	}
	for k, n := range m.countVolumes() {
		ch <- prometheus.MustNewConstMetric(totalVolumes, prometheus.GaugeValue, float64(n), k.plugin, k.state)
	}
	for c, f := range m.claimFigures() {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, c.namespace, c.name)
		}
		for _, g := range claimGauges {
			gauge(g.desc, float64(g.of(&f.Usage)))
		}
		if f.Health != nil {
			var v float64
			if f.Health.Abnormal {
				v = 1
			}
			gauge(claimAbnormal, v)
		}
	}
}

// claimFigures returns the figures of all claims, each once, since pods can share a claim.
func (m *Manager) claimFigures() map[claimed]Figures {
	has := func(ps *volumes) bool {
		return slices.ContainsFunc(needed(ps.spec), func(v *v1.Volume) bool { return claimOf(ps.spec, v) != "" })
	}
	m.refresh(context.Background(), m.cfg.StatsPeriod, has)
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[claimed]Figures{}
	for _, ps := range m.pods {
		if ps.phase != wanted || ps.spec == nil {
			continue
		}
		for _, f := range ps.figuresLocked() {
			if k := (claimed{ps.spec.Namespace, f.Claim}); f.Claim != "" && out[k].At.Before(f.At) {
				out[k] = f
			}
		}
	}
	return out
}

type claimed struct{ namespace, name string }

type countedAs struct{ plugin, state string }

func (m *Manager) countVolumes() map[countedAs]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := map[countedAs]int{}
	for _, ps := range m.pods {
		for _, v := range ps.vols {
			if v.kind == nil {
				continue
			}
			if ps.phase == wanted {
				n[countedAs{v.plugin(), "desired_state_of_world"}]++
			}
			if v.ready {
				n[countedAs{v.plugin(), "actual_state_of_world"}]++
			}
		}
	}
	return n
}

// countFound counts and records the volumes that an earlier agent left on disk.
func (m *Manager) countFound() {
	left := map[types.UID][]string{}
	uids, err := readDir(filepath.Join(m.cfg.RootDir, "pods"))
	if err != nil {
		m.cfg.Log.Warn("failed to list volumes of earlier pods", "err", err)
	}
	for _, uid := range uids {
		all, err := m.found(types.UID(uid))
		if err != nil {
			m.metrics.counters.foundFailed.Inc()
		}
		for _, f := range all {
			m.metrics.counters.found.Inc()
			if f.kind == nil {
				m.metrics.counters.foundFailed.Inc()
			}
			left[types.UID(uid)] = append(left[types.UID(uid)], f.place.Name)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = left
}

// wasMigrated reports whether a volume prepared by this agent is a migrated in-tree volume.
func (m *Manager) wasMigrated(uid types.UID, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := m.pods[uid]
	if ps == nil {
		return false
	}
	for _, v := range ps.vols {
		if v.have.Migrated && cmp.Or(v.have.Name, v.spec.Name) == name {
			return true
		}
	}
	return false
}

// wasLeft reports whether an earlier agent left the volume.
func (m *Manager) wasLeft(uid types.UID, v *vol, have Ready) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.left[uid], cmp.Or(have.Name, v.spec.Name))
}
