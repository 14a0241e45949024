package eviction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// stage is a fake node with pods. Each pod uses memory and disk until it is released.
type stage struct {
	mu         sync.Mutex
	began      time.Time
	left       map[Signal]int64 // available, without the usage of pods
	pods       map[types.UID]*onStage
	disks      error
	unread     error // of Use
	images     int64 // bytes on the disk that can be removed
	records    []string
	looks      map[Signal]int
	asked      []Depth // of the calls of Use
	belowLimit bool    // a new measurement finds no pod over its limit any more
}

type onStage struct {
	pod      *v1.Pod
	memory   uint64
	layer    uint64
	grows    uint64 // bytes of memory a second
	since    time.Time
	stuck    bool
	released chan struct{}
}

func newStage() *stage {
	return &stage{began: time.Now(), left: map[Signal]int64{}, pods: map[types.UID]*onStage{}, looks: map[Signal]int{}}
}

func (s *stage) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordLocked(format, args...)
}

func (s *stage) recordLocked(format string, args ...any) {
	s.records = append(s.records, fmt.Sprintf("%v ", time.Since(s.began))+fmt.Sprintf(format, args...))
}

func (s *stage) add(o onStage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.since, o.released = time.Now(), make(chan struct{})
	s.pods[o.pod.UID] = &o
}

func (s *stage) Disks(context.Context) (Disks, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Disks{}, s.disks
}

func (o *onStage) uses() uint64 {
	return o.memory + uint64(float64(o.grows)*time.Since(o.since).Seconds())
}

func (s *stage) Observe(_ context.Context, signals []Signal) Observations {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Observations{}
	for _, sig := range signals {
		n, known := s.left[sig]
		if !known {
			continue
		}
		s.looks[sig]++
		for _, p := range s.pods {
			if sig.memory() {
				n -= int64(p.uses())
			} else {
				n -= int64(p.layer)
			}
		}
		if !sig.memory() {
			n -= s.images
		}
		out[sig] = Observation{Capacity: 100 << 30, Available: n, At: time.Now()}
	}
	return out
}

func (s *stage) Use(_ context.Context, depth Depth) (map[types.UID]Use, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, depth)
	if s.unread != nil {
		return nil, s.unread
	}
	out := map[types.UID]Use{}
	for uid, p := range s.pods {
		n := p.uses()
		if s.belowLimit && depth == DisksNow {
			p.layer = 0
		}
		out[uid] = Use{
			At:         time.Now(),
			Memory:     &n,
			Containers: []ContainerUse{{Name: "main", Memory: &n, Logs: &Space{}, Layer: &Space{Bytes: p.layer}}},
		}
	}
	return out, nil
}

func (s *stage) list() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*v1.Pod
	for _, p := range s.pods {
		out = append(out, p.pod)
	}
	return out
}

// evict releases a pod after two seconds, after 50 ms if it is killed immediately, or never if it is stuck.
func (s *stage) evict(uid types.UID, o Order) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	how := o.Grace.String()
	if o.Immediate {
		how = "at once"
	}
	s.recordLocked("evict %s %s", uid, how)
	took := 2 * time.Second
	if o.Immediate {
		took = 50 * time.Millisecond
	}
	if !p.stuck {
		time.AfterFunc(took, func() {
			s.mu.Lock()
			delete(s.pods, uid)
			s.mu.Unlock()
			close(p.released)
		})
	}
	return p.released
}

func (s *stage) Node(kind, reason, message string) { s.record("%s %s: %s", kind, reason, message) }
func (s *stage) Annotated(p *v1.Pod, notes map[string]string, kind, reason, message string) {
	s.record("%s %s %s %v", p.Name, kind, reason, notes)
}

// play runs a Manager in virtual time for a while, and returns it with its metrics.
func (s *stage) play(
	t *testing.T, settings Settings, change func(*Config), long time.Duration,
) (*Manager, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	known := make(chan struct{})
	close(known)
	cfg := Config{
		Thresholds:           parse(t, settings),
		PressureTransition:   hold,
		MaxPodGrace:          20 * time.Second,
		Limits:               true,
		Source:               s,
		Synced:               []<-chan struct{}{known},
		Pods:                 s.list,
		Evict:                s.evict,
		RemoveDeadContainers: func(context.Context) error { s.record("remove ended"); return nil },
		RemoveUnusedImages: func(context.Context) error {
			s.record("remove images")
			s.mu.Lock()
			defer s.mu.Unlock()
			s.images = 0
			return nil
		},
		OnChange: func() {},
		Events:   s,
		Registry: reg,
		Log:      slog.New(slog.DiscardHandler),
		Now:      time.Now,
	}
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()
	if err := e.Run(ctx); err != nil {
		t.Error(err)
	}
	return e, reg
}

// reported returns what happened. Times of 10 ms are shown as 0 s: for that long the disk loop waits at the start for
// the first check of memory.
func (s *stage) reported() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(strings.Join(s.records, "\n"), "10ms ", "0s ")
}

func virtually(t *testing.T, f func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newStage()) })
}

// The agent panics while it evicts the pod that uses the most memory. The next pod is evicted, and the first one is
// tried again after five minutes.
func TestPanicDuringEviction(t *testing.T) {
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable] = 4 * gi
		s.add(onStage{pod: asks("big", 0, v1.ResourceMemory, ""), memory: 4 * gi})
		s.add(onStage{pod: asks("small", 0, v1.ResourceMemory, ""), memory: 3 * gi})
		var at []string
		began := time.Now()
		s.play(t, oneGi, func(c *Config) {
			c.Evict = func(uid types.UID, o Order) <-chan struct{} {
				at = append(at, fmt.Sprintf("%s %v", uid, time.Since(began).Round(time.Minute)))
				if uid == "big" && len(at) == 1 {
					panic("at this pod")
				}
				return s.evict(uid, o)
			}
		}, 10*time.Minute)
		if want := []string{"big 0s", "small 0s", "big 5m0s"}; !slices.Equal(at, want) {
			t.Errorf("evicted %v, want %v", at, want)
		}
	})
}

// A panic at one candidate does not keep the other candidates from being checked.
func TestPanicDuringChoice(t *testing.T) {
	virtually(t, func(t *testing.T, s *stage) {
		e, _ := s.play(t, Settings{}, nil, time.Second)
		var judged []types.UID
		e.forEach([]Candidate{
			{Pod: asks("bad", 0, v1.ResourceMemory, "")},
			{Pod: asks("good", 0, v1.ResourceMemory, "")},
		}, func(c Candidate) {
			if c.Pod.UID == "bad" {
				panic("at this pod")
			}
			judged = append(judged, c.Pod.UID)
		})
		if !slices.Equal(judged, []types.UID{"good"}) || !e.excluded["bad"].Equal(time.Now().Add(5*time.Minute)) {
			t.Errorf("judged %v, shunned %v", judged, e.excluded)
		}
	})
}

const gi = 1 << 30

var oneGi = Settings{Hard: map[string]string{"memory.available": "1Gi"}}

func TestEvictsOnePodAtATime(t *testing.T) {
	parity.Proves(t, "EVIC-14")
	parity.ProvesPart(t, 6, "EVIC-21")
	parity.ProvesPart(t, 3, "EVIC-24")
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable] = 7 * gi
		for i, n := range []uint64{2, 3, 4} {
			s.add(onStage{pod: asks(fmt.Sprint("p", i), 0, v1.ResourceMemory, ""), memory: n * gi})
		}
		_, reg := s.play(t, oneGi, nil, time.Minute)
		// The pods use 2 GiB more than there are. Evicting the pod with 4 GiB is enough.
		if got := s.reported(); got != says(0)+"\n0s evict p2 1s\n0s p2 Warning Evicted map[offending_containers:main "+
			"offending_containers_usage:4Gi starved_resource:memory]" {
			t.Errorf("reported:\n%s", got)
		}
		m := scrape.Of(t, reg)
		if m["kubelet_evictions{eviction_signal=memory.available}"] != 1 ||
			m["kubelet_eviction_stats_age_seconds{eviction_signal=memory.available}"] != 1 {
			t.Errorf("metrics %v", m)
		}
	})
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable] = 4 * gi
		for i, n := range []uint64{2, 3, 4} {
			s.add(onStage{pod: asks(fmt.Sprint("p", i), 0, v1.ResourceMemory, ""), memory: n * gi, stuck: n == 4})
		}
		s.play(t, oneGi, nil, 2*time.Minute)
		var evictions []string
		for _, line := range strings.Split(s.reported(), "\n") {
			if strings.Contains(line, "evict ") {
				evictions = append(evictions, line)
			}
		}
		// The second pod is evicted when the wait for the first one has timed out, the third when the second is
		// released. No pod is evicted twice.
		if got := fmt.Sprint(evictions); got != "[0s evict p2 1s 30s evict p1 1s 32s evict p0 1s]" {
			t.Errorf("evictions: %s", got)
		}
	})
}

// Config.Pods is called without Manager.mu: the owner of the pods calls Pressures under a lock of its own, so that each
// could wait for the lock of the other.
func TestPodsCalledWithoutLock(t *testing.T) {
	asked := 0
	var e *Manager
	e, err := New(Config{Pods: func() []*v1.Pod {
		asked++
		if !e.mu.TryLock() {
			t.Error("a caller of Pressures now waits for this answer")
			return nil
		}
		e.mu.Unlock()
		return []*v1.Pod{asks("there", 0, v1.ResourceMemory, "")}
	}})
	if err != nil {
		t.Fatal(err)
	}
	e.evicting["there"], e.evicting["gone"] = true, true
	if got := e.candidates(map[types.UID]Use{"there": {}}); len(got) > 0 {
		t.Errorf("candidates %v: it is on its way out", got)
	}
	e.forgetReleased()
	if asked != 2 || len(e.evicting) != 1 || !e.evicting["there"] {
		t.Errorf("asked %d times, leaving %v", asked, e.evicting)
	}
}

// A pod that takes longer to terminate than it is waited for is dropped when it is gone, also without memory
// thresholds.
func TestReleasedPodsAreDropped(t *testing.T) {
	virtually(t, func(t *testing.T, s *stage) {
		limited := asks("limited", 0, v1.ResourceMemory, "")
		limited.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: amount("1Gi")}
		s.add(onStage{pod: limited, layer: gi + 1, stuck: true})
		time.AfterFunc(45*time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.pods, limited.UID)
		})
		e, _ := s.play(t, Settings{}, nil, 2*time.Minute)
		if !strings.HasPrefix(s.reported(), "0s evict limited 1s\n") || len(e.evicting) > 0 {
			t.Errorf("leaving %v, reported:\n%s", e.evicting, s.reported())
		}
	})
}

func TestNoEvictionBeforeSync(t *testing.T) {
	parity.Differs(t, "RT-04", "0035")
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable], s.left[NodeFSAvailable] = 0, 0
		s.add(onStage{pod: asks("p", 0, v1.ResourceMemory, ""), memory: gi, layer: gi})
		settings := Settings{Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "1Gi"}}
		e, _ := s.play(t, settings, func(c *Config) { c.Synced = append(c.Synced, make(chan struct{})) }, time.Minute)
		if s.reported() != "" {
			t.Errorf("reported:\n%s", s.reported())
		}
		if got := fmt.Sprint(e.Pressures()); got != "[MemoryPressure DiskPressure]" {
			t.Errorf("pressures %s", got)
		}
	})
}

func says(second int) string {
	return fmt.Sprintf("%ds Warning EvictionThresholdMet: Attempting to reclaim memory", second)
}

func TestNoEvictionWithoutUsage(t *testing.T) {
	virtually(t, func(t *testing.T, s *stage) {
		s.add(onStage{pod: asks("p", 0, v1.ResourceMemory, ""), memory: gi})
		e, _ := s.play(t, oneGi, nil, time.Minute) // nothing can be measured
		if s.reported() != "" || len(e.Pressures()) != 0 {
			t.Errorf("pressures %v, reported:\n%s", e.Pressures(), s.reported())
		}
	})
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable], s.unread = 0, errors.New("no such file")
		s.add(onStage{pod: asks("p", 0, v1.ResourceMemory, ""), memory: gi})
		e, _ := s.play(t, oneGi, nil, 55*time.Second) // the usage of pods cannot be read
		// Memory is checked every second, and the event is recorded every ten seconds.
		if got := strings.Split(s.reported(), "\n"); len(got) != 6 || got[0] != says(0) || got[5] != says(50) ||
			len(e.Pressures()) != 1 {
			t.Errorf("pressures %v, reported:\n%s", e.Pressures(), s.reported())
		}
	})
}

// TestMemoryCheckInterval evicts programs whose memory grows by up to 4 GB per second.
func TestMemoryCheckInterval(t *testing.T) {
	parity.Differs(t, "EVIC-20", "0028")
	parity.Differs(t, "EVIC-09", "0028")
	parity.Differs(t, "EVIC-10", "0028")
	for _, speed := range []uint64{100e6, 500e6, 1e9, 4e9} {
		virtually(t, func(t *testing.T, s *stage) {
			s.left[MemoryAvailable] = 21 * gi
			s.add(onStage{pod: asks("greedy", 0, v1.ResourceMemory, ""), grows: speed})
			s.add(onStage{pod: asks("modest", 0, v1.ResourceMemory, ""), memory: 1 << 20})
			e, _ := s.play(t, oneGi, nil, 5*time.Minute)
			crossed := time.Duration(float64(20*gi-1<<20) / float64(speed) * float64(time.Second))
			var at time.Duration
			logged, line, _ := strings.Cut(s.reported(), "\n")
			line, _, _ = strings.Cut(line, "\n")
			if !strings.Contains(logged, "EvictionThresholdMet") {
				t.Errorf("at %d bytes a second the first is %q", speed, logged)
			}
			when, what, _ := strings.Cut(line, " ")
			at, err := time.ParseDuration(when)
			want := "evict greedy at once" // memory would be exhausted before a graceful termination ends
			if speed < 200e6 {
				want = "evict greedy 1s"
			}
			if late := at - crossed; err != nil || what != want || late < 0 || late > 2*minInterval {
				t.Errorf("at %d bytes a second: %q, %v after the threshold", speed, what, late)
			}
			if len(e.Pressures()) != 1 {
				t.Error("no pressure")
			}
		})
	}
}

func TestMemoryCheckIntervalWhenIdle(t *testing.T) {
	parity.Differs(t, "EVIC-09", "0028")
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable], s.left[NodeFSAvailable] = 25*gi, 50*gi
		s.play(t, Settings{
			Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "1Gi"},
		}, nil, 5*time.Minute)
		// maxMemoryRate uses up the 24 GiB above the threshold in three seconds.
		if m, d := s.looks[MemoryAvailable], s.looks[NodeFSAvailable]; m != 101 || d != 31 {
			t.Errorf("memory was looked at %d times, the disk %d times", m, d)
		}
	})
}

func TestMemoryLoopDoesNotWaitForDisk(t *testing.T) {
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable], s.left[NodeFSAvailable] = 2*gi, 0
		s.add(onStage{pod: asks("a", 0, v1.ResourceMemory, ""), memory: gi, grows: 100 << 20})
		settings := Settings{Hard: map[string]string{"memory.available": "512Mi", "nodefs.available": "1Gi"}}
		s.play(t, settings, func(c *Config) {
			// the disk hangs
			c.RemoveDeadContainers = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		}, time.Minute)
		if got := s.reported(); !strings.Contains(got, "5.1") || !strings.Contains(got, "s evict a") {
			t.Errorf("reported:\n%s", got)
		}
	})
}

func TestReclaimBeforeEviction(t *testing.T) {
	parity.ProvesPart(t, 2, "EVIC-13")
	settings := Settings{Hard: map[string]string{"nodefs.available": "1Gi"}}
	TestReclaims(t)
	virtually(t, func(t *testing.T, s *stage) {
		s.left[NodeFSAvailable], s.images = 5*gi, 4*gi+1
		s.add(onStage{pod: asks("p", 0, v1.ResourceMemory, "")})
		s.play(t, settings, nil, 25*time.Second)
		if got := s.reported(); got != "0s Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage\n0s remove "+
			"ended\n0s remove images" {
			t.Errorf("reported:\n%s", got)
		}
	})
	virtually(t, func(t *testing.T, s *stage) {
		s.left[NodeFSAvailable], s.images = 5*gi, gi
		s.add(onStage{pod: asks("p", 0, v1.ResourceMemory, ""), layer: 4*gi + 1})
		s.play(t, settings, nil, 9*time.Second)
		if got := s.reported(); !strings.HasPrefix(got, "0s Warning EvictionThresholdMet: Attempting to reclaim "+
			"ephemeral-storage\n0s remove ended\n0s remove images\n0s evict p 1s\n0s p Warning Evicted") ||
			strings.Count(got, "evict ") != 1 {
			t.Errorf("reported:\n%s", got)
		}
	})
}

// TestStatsAgeMetric checks that the age is observed for all thresholds that are met when a pod is evicted.
func TestStatsAgeMetric(t *testing.T) {
	parity.ProvesPart(t, 3, "EVIC-24")
	virtually(t, func(t *testing.T, s *stage) {
		s.left[NodeFSAvailable], s.left[ImageFSAvailable] = gi, gi
		s.add(onStage{pod: asks("p", 0, v1.ResourceMemory, ""), layer: gi})
		settings := Settings{Hard: map[string]string{"nodefs.available": "512Mi", "imagefs.available": "256Mi"}}
		_, reg := s.play(t, settings, nil, 5*time.Second)
		m := scrape.Of(t, reg)
		for _, signal := range []string{"nodefs.available", "imagefs.available"} {
			if n := m["kubelet_eviction_stats_age_seconds{eviction_signal="+signal+"}"]; n != 1 {
				t.Errorf("%s: %v measurements", signal, n)
			}
		}
		evictions := m["kubelet_evictions{eviction_signal=nodefs.available}"] +
			m["kubelet_evictions{eviction_signal=imagefs.available}"]
		if evictions != 1 {
			t.Errorf("evictions %v", m)
		}
	})
}

// TestMinimumReclaim checks that a pod is evicted unless the removal of unused images and containers reclaims
// evictionMinimumReclaim beyond the threshold.
func TestMinimumReclaim(t *testing.T) {
	parity.ProvesPart(t, 3, "EVIC-07")
	settings := Settings{
		Hard:           map[string]string{"nodefs.available": "1Gi"},
		MinimumReclaim: map[string]string{"nodefs.available": "2Gi"},
	}
	for images, evicts := range map[int64]bool{2 * gi: true, 3 * gi: false} {
		virtually(t, func(t *testing.T, s *stage) {
			s.left[NodeFSAvailable], s.images = 11*gi/2, images
			s.add(onStage{pod: asks("p", 0, v1.ResourceMemory, ""), layer: uint64(5*gi - images)})
			s.play(t, settings, nil, 25*time.Second)
			if got := strings.Count(s.reported(), "evict p 1s"); got != map[bool]int{true: 1}[evicts] {
				t.Errorf("with %d GiB of images the pod is evicted %d times:\n%s", images/gi, got, s.reported())
			}
		})
	}
}

func TestMemoryEvictionBeforeDiskEviction(t *testing.T) {
	virtually(t, func(t *testing.T, s *stage) {
		s.left[MemoryAvailable], s.left[NodeFSAvailable] = gi, 5*gi
		s.add(onStage{pod: asks("a", 0, v1.ResourceMemory, ""), memory: gi})
		s.add(onStage{pod: asks("b", 0, v1.ResourceMemory, ""), layer: 5 * gi})
		settings := Settings{Hard: map[string]string{"memory.available": "512Mi", "nodefs.available": "1Gi"}}
		s.play(t, settings, nil, 15*time.Second)
		lines := strings.Split(s.reported(), "\n")
		first := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "evict ") })
		if first < 0 || !strings.HasPrefix(lines[first], "0s evict a") || !strings.Contains(s.reported(), "evict b") {
			t.Errorf("reported:\n%s", s.reported())
		}
	})
}

// TestVolumesAreRemeasuredBeforeEviction checks that volumes are measured again only if a pod exceeds a limit by the
// last measurement, and that the new measurement decides.
func TestVolumesAreRemeasuredBeforeEviction(t *testing.T) {
	limited := asks("limited", 0, v1.ResourceMemory, "")
	limited.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: amount("1Gi")}
	for _, belowLimit := range []bool{false, true} {
		virtually(t, func(t *testing.T, s *stage) {
			s.left[NodeFSAvailable], s.belowLimit = 100*gi, belowLimit
			layer := uint64(gi)
			if belowLimit {
				layer++
			}
			s.add(onStage{pod: limited, layer: layer})
			s.play(t, Settings{Hard: map[string]string{"nodefs.available": "1Gi"}}, nil, 25*time.Second)
			if got := s.reported(); got != "" {
				t.Errorf("belowLimit %v:\n%s", belowLimit, got)
			}
			if wanted := map[bool]string{false: "[1 1 1]", true: "[1 2 1 1]"}[belowLimit]; fmt.Sprint(s.asked) != wanted {
				t.Errorf("belowLimit %v: measured %v, want %s", belowLimit, s.asked, wanted)
			}
		})
	}
}

func TestLocalStorageLimitsComeFirst(t *testing.T) {
	parity.Proves(t, "EVIC-28", "EVIC-29")
	limited := asks("limited", 0, v1.ResourceMemory, "")
	limited.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: amount("1Gi")}
	for _, tc := range []struct {
		left    int64
		off     bool
		want    string
		disrupt bool
	}{
		{100 * gi, false, "0s evict limited 1s\n0s limited Warning Evicted map[]", false},
		// the node is below its threshold, too, until the pod is released
		{3 * gi, false, "0s evict limited 1s\n0s limited Warning Evicted map[]", false},
		{100 * gi, true, "", false},
	} {
		virtually(t, func(t *testing.T, s *stage) {
			s.left[NodeFSAvailable] = tc.left
			s.add(onStage{pod: limited, layer: gi + 1})
			s.add(onStage{pod: asks("large", 0, v1.ResourceMemory, ""), layer: gi + 1})
			s.play(t, Settings{Hard: map[string]string{"nodefs.available": "1Gi"}}, func(c *Config) {
				c.Limits = !tc.off
				evict := c.Evict
				c.Evict = func(uid types.UID, o Order) <-chan struct{} {
					if o.Disrupts != tc.disrupt {
						t.Errorf("disruption: %v", o.Disrupts)
					}
					return evict(uid, o)
				}
			}, 30*time.Second)
			if got := s.reported(); got != tc.want {
				t.Errorf("%d left, off %v:\n%s", tc.left, tc.off, got)
			}
		})
	}
}
