package eviction

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/resources/stats"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// fullDisk mounts a file system that is nearly full and returns its path.
func fullDisk(t *testing.T) string {
	t.Helper()
	need.Root(t, "mounting")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "layer"), make([]byte, 1000<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runtimeDisks is a runtime that reports these mount points. Empty: it does not report one.
type runtimeDisks struct{ images, containers string }

func (r runtimeDisks) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	at := func(dir string) []*runtimeapi.FilesystemUsage {
		if dir == "" {
			return nil
		}
		return []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir}}}
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: at(r.images), ContainerFilesystems: at(r.containers)}, nil
}

// figures is a statsProvider with fixed measurements.
type figures struct {
	node, pods stats.Memory
	limited    bool
	err        error
	summary    *statsapi.Summary
}

func (f figures) NodeMemory() (stats.Memory, error)       { return f.node, f.err }
func (f figures) PodsMemory() (stats.Memory, bool, error) { return f.pods, f.limited, f.err }
func (f figures) Fresh(context.Context) *statsapi.Summary { return f.summary }
func (f figures) Summary(context.Context, bool) (*statsapi.Summary, error) {
	return f.summary, f.err
}

func newMachine(t *testing.T, change func(*MachineConfig)) *Machine {
	t.Helper()
	cfg := MachineConfig{
		Stats:              figures{},
		Runtime:            runtimeDisks{images: t.TempDir()},
		Host:               fstest.MapFS{},
		RootDir:            t.TempDir(),
		MaxPIDs:            1000,
		SeparateContainers: true,
		Remeasure:          func(context.Context, time.Duration) {},
		Local:              func(types.UID) map[string]bool { return nil },
		Log:                slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	return NewMachine(cfg)
}

func TestSeparateContainerFilesystem(t *testing.T) {
	parity.Proves(t, "RT-41")
	full, roomy := fullDisk(t), t.TempDir()
	for name, tc := range map[string]struct {
		images, containers, signal string
		separate, pressure         bool
	}{
		"the disk of containers is full":                 {roomy, full, "containerfs.available", true, true},
		"images do not affect the disk of containers":    {full, roomy, "containerfs.available", true, false},
		"containers do not affect the disk of images":    {roomy, full, "imagefs.available", true, false},
		"the disk of images is full":                     {full, roomy, "imagefs.available", true, true},
		"gate off: both on the disk of images":           {roomy, full, "containerfs.available", false, false},
		"gate off: both are full":                        {full, roomy, "containerfs.available", false, true},
		"a runtime that does not report it has one disk": {full, "", "containerfs.available", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, func(c *MachineConfig) {
				c.Runtime, c.SeparateContainers = runtimeDisks{tc.images, tc.containers}, tc.separate
			})
			d, err := m.Disks(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want := (Disks{Images: tc.images == full, Containers: tc.separate && tc.containers != ""}); d != want {
				t.Errorf("disks %+v, want %+v", d, want)
			}
			s := Signal(tc.signal)
			seen := m.Observe(t.Context(), []Signal{s})
			_, f := State{}.Evaluate([]Threshold{{
				Signal: s,
				Least:  Amount{Quantity: amount("100Ki")},
			}}, seen, hold, time.Now())
			if got := len(f.Pressures) > 0; got != tc.pressure || len(seen) != 1 {
				t.Errorf("pressure on the disk: %v, want %v, by %v", got, tc.pressure, seen)
			}
		})
	}
}

func TestObserveLeavesOutFailures(t *testing.T) {
	all := []Signal{
		MemoryAvailable, AllocatableMemory, NodeFSAvailable, NodeFSInodesFree, ImageFSAvailable, ContainerFSInodesFree,
		PIDAvailable,
	}
	m := newMachine(t, func(c *MachineConfig) {
		c.Stats, c.RootDir = figures{err: errors.New("no such file"), limited: true}, filepath.Join(t.TempDir(), "gone")
	})
	if seen := m.Observe(t.Context(), all); len(seen) != 0 {
		t.Errorf("seen: %v", seen)
	}
	m = newMachine(t, func(c *MachineConfig) {
		c.Stats = figures{
			node:    stats.Memory{At: now, Capacity: 100, WorkingSet: 30},
			pods:    stats.Memory{At: now, Capacity: 50, WorkingSet: 60},
			limited: true,
		}
		c.Host = fstest.MapFS{"proc/loadavg": {Data: []byte("0.42 0.31 0.30 2/345 6789\n")}}
	})
	seen := m.Observe(t.Context(), all)
	if seen[MemoryAvailable] != (Observation{100, 70, now}) || seen[AllocatableMemory] != (Observation{50, 0, now}) ||
		seen[PIDAvailable].Available != 655 {
		t.Errorf("seen: %v", seen)
	}
	if _, ok := seen[ImageFSAvailable]; ok {
		t.Error("the disk of images is measured before the runtime has reported where it is")
	}
}

func TestUseFromStats(t *testing.T) {
	fs := func(n uint64) *statsapi.FsStats {
		return &statsapi.FsStats{Time: metav1.NewTime(now), UsedBytes: &n, InodesUsed: &n}
	}
	n, processes := uint64(700), uint64(7)
	old := *fs(4000)
	old.Time = metav1.NewTime(after(-31))
	p := &statsapi.PodStats{
		Memory:       &statsapi.MemoryStats{Time: metav1.NewTime(after(-1)), WorkingSetBytes: &n},
		ProcessStats: &statsapi.ProcessStats{ProcessCount: &processes},
		Containers: []statsapi.ContainerStats{{
			Name:   "main",
			Memory: &statsapi.MemoryStats{WorkingSetBytes: &n},
			Logs:   fs(10),
			Rootfs: fs(20),
		}, {Name: "new"}},
		VolumeStats: []statsapi.VolumeStats{{
			Name:    "local",
			FsStats: *fs(100),
		}, {Name: "claim", FsStats: *fs(1000)}, {Name: "old", FsStats: old}},
		EphemeralStorage: fs(10 + 20 + 100 + 4000 + 3),
	}
	u := useOf(p, map[string]bool{"local": true, "old": true}, now)
	if !u.At.Equal(after(-1)) || *u.Memory != 700 || *u.Processes != 7 || u.Own != (Space{3, 3}) {
		t.Errorf("use %+v", u)
	}
	if u.space(inLogs|inLayers|inVolumes) != (Space{130, 130}) || u.space(inLogs) != (Space{10, 10}) ||
		u.space(inVolumes) != (Space{100, 100}) {
		t.Errorf("space %+v", u.space(inLogs|inLayers|inVolumes))
	}
	if _, there := u.Volumes["old"]; there || len(u.Volumes) != 2 || u.Containers[1].Logs != nil {
		t.Errorf("volumes %v, containers %v", u.Volumes, u.Containers)
	}
}
