package eviction

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/host/machine"
	"keelson/internal/resources/stats"
)

// runtimeTimeout is the timeout of ImageFsInfo.
const runtimeTimeout = 5 * time.Second

// statsProvider provides the measurements of memory and pods.
type statsProvider interface {
	NodeMemory() (stats.Memory, error)
	// PodsMemory returns the memory of all pods. ok is false if they have no limit.
	PodsMemory() (m stats.Memory, ok bool, err error)
	// Fresh returns the current memory of pods, and Summary also their disk usage.
	Fresh(context.Context) *statsapi.Summary
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// imageFS is the runtime's API for its file systems.
type imageFS interface {
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error)
}

// MachineConfig holds the configuration of a Machine. All fields are required unless noted otherwise.
type MachineConfig struct {
	Stats   statsProvider
	Runtime imageFS
	Host    fs.FS
	RootDir string // the agent's
	MaxPIDs int64  // 0: not known
	// SeparateContainers supports writable layers on a file system separate from images (gate KubeletSeparateDiskGC).
	SeparateContainers bool
	// Remeasure measures volumes whose last measurement is older than age. It does not wait for slow ones.
	Remeasure func(ctx context.Context, age time.Duration)
	// Local returns the volumes of a pod that are on the node's disk.
	Local func(types.UID) map[string]bool
	Log   *slog.Logger
}

// Machine is the Source for the machine that the agent runs on.
type Machine struct {
	cfg MachineConfig

	mu         sync.Mutex
	images     string // mount points; empty: not known yet
	containers string
	failing    map[Signal]bool // signals that could not be measured, for logging
}

// NewMachine returns a Machine.
func NewMachine(cfg MachineConfig) *Machine { return &Machine{cfg: cfg, failing: map[Signal]bool{}} }

// Disks gets the mount points of images and writable layers from the runtime, once. Their usage is read from the
// kernel.
func (m *Machine) Disks(ctx context.Context) (Disks, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	info, err := m.cfg.Runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return Disks{}, err
	}
	at := func(list []*runtimeapi.FilesystemUsage) string {
		if len(list) == 0 {
			return ""
		}
		return list[0].GetFsId().GetMountpoint()
	}
	images := at(info.GetImageFilesystems())
	if images == "" {
		return Disks{}, errors.New("read image file system: the runtime reports none")
	}
	containers := images // runtimes without the field have both on one file system
	if other := at(info.GetContainerFilesystems()); other != "" && m.cfg.SeparateContainers {
		containers = other
	}
	var d Disks
	if d.Images, err = onDifferentDevices(m.cfg.RootDir, images); err != nil {
		return Disks{}, err
	}
	if d.Containers, err = onDifferentDevices(images, containers); err != nil {
		return Disks{}, err
	}
	m.mu.Lock()
	m.images, m.containers = images, containers
	m.mu.Unlock()
	return d, nil
}

// onDifferentDevices reports whether two paths are on different file systems.
func onDifferentDevices(a, b string) (bool, error) {
	var sa, sb unix.Stat_t
	if err := unix.Stat(a, &sa); err != nil {
		return false, fmt.Errorf("find file system of %s: %w", a, err)
	}
	if err := unix.Stat(b, &sb); err != nil {
		return false, fmt.Errorf("find file system of %s: %w", b, err)
	}
	return sa.Dev != sb.Dev, nil
}

// Observe measures the signals. Failures are logged when they begin.
func (m *Machine) Observe(_ context.Context, signals []Signal) Observations {
	out := Observations{}
	for _, s := range signals {
		o, known, err := m.observe(s)
		if known && err == nil {
			out[s] = o
		}
		m.mu.Lock()
		before := m.failing[s]
		m.failing[s] = err != nil
		m.mu.Unlock()
		if err != nil && !before {
			m.cfg.Log.Warn("failed to measure eviction signal; its thresholds are ignored", "signal", s, "err", err)
		}
	}
	return out
}

func (m *Machine) observe(s Signal) (o Observation, known bool, err error) {
	m.mu.Lock()
	images, containers := m.images, m.containers
	m.mu.Unlock()
	switch s {
	case MemoryAvailable:
		r, err := m.cfg.Stats.NodeMemory()
		return Observation{r.Capacity, int64(r.Available()), r.At}, true, err
	case AllocatableMemory:
		r, limited, err := m.cfg.Stats.PodsMemory()
		return Observation{r.Capacity, int64(r.Available()), r.At}, limited, err
	case PIDAvailable:
		n, err := machine.ReadPIDs(m.cfg.Host)
		return Observation{uint64(m.cfg.MaxPIDs), m.cfg.MaxPIDs - n, time.Now()}, m.cfg.MaxPIDs > 0, err
	case NodeFSAvailable, NodeFSInodesFree:
		return observeFS(m.cfg.RootDir, s == NodeFSInodesFree)
	case ImageFSAvailable, ImageFSInodesFree:
		return observeFS(images, s == ImageFSInodesFree)
	case ContainerFSAvailable, ContainerFSInodesFree:
		return observeFS(containers, s == ContainerFSInodesFree)
	}
	return o, false, nil
}

func observeFS(path string, inodes bool) (o Observation, known bool, err error) {
	if path == "" {
		return o, false, nil
	}
	st, err := machine.ReadFilesystem(path)
	if inodes { // file systems that allocate inodes on demand report 0
		return Observation{st.Inodes, int64(st.InodesFree), time.Now()}, st.Inodes > 0, err
	}
	return Observation{st.Capacity, int64(st.Available), time.Now()}, true, err
}

// Use returns the current usage of pods. Measurements of volumes that are stale are left out.
func (m *Machine) Use(ctx context.Context, depth Depth) (map[types.UID]Use, error) {
	switch depth {
	case MemoryNow:
		return m.uses(m.cfg.Stats.Fresh(ctx)), nil
	case DisksNow:
		m.cfg.Remeasure(ctx, 0)
	}
	s, err := m.cfg.Stats.Summary(ctx, false)
	if err != nil {
		return nil, err
	}
	return m.uses(s), nil
}

func (m *Machine) uses(s *statsapi.Summary) map[types.UID]Use {
	out := make(map[types.UID]Use, len(s.Pods))
	for i := range s.Pods {
		p := &s.Pods[i]
		uid := types.UID(p.PodRef.UID)
		out[uid] = useOf(p, m.cfg.Local(uid), time.Now())
	}
	return out
}

// useOf converts the stats of one pod.
func useOf(p *statsapi.PodStats, local map[string]bool, now time.Time) Use {
	u := Use{At: now}
	if mem := p.Memory; mem != nil {
		u.At, u.Memory = mem.Time.Time, mem.WorkingSetBytes
	}
	if p.ProcessStats != nil {
		u.Processes = p.ProcessStats.ProcessCount
	}
	var sum Space
	for _, c := range p.Containers {
		cu := ContainerUse{Name: c.Name, Logs: space(c.Logs), Layer: space(c.Rootfs)}
		if c.Memory != nil {
			cu.Memory = c.Memory.WorkingSetBytes
		}
		for _, s := range []*Space{cu.Logs, cu.Layer} {
			if s != nil {
				sum.add(*s)
			}
		}
		u.Containers = append(u.Containers, cu)
	}
	for _, v := range p.VolumeStats {
		s := space(&v.FsStats)
		if s == nil {
			continue
		}
		if local[v.Name] {
			sum.add(*s)
		}
		if now.Sub(v.Time.Time) > stale {
			continue
		}
		if u.Volumes == nil {
			u.Volumes = map[string]VolumeUse{}
		}
		u.Volumes[v.Name] = VolumeUse{*s, local[v.Name]}
	}
	if all := space(p.EphemeralStorage); all != nil {
		// The rest are files of the agent, such as the hosts file.
		u.Own = Space{all.Bytes - min(sum.Bytes, all.Bytes), all.Inodes - min(sum.Inodes, all.Inodes)}
	}
	return u
}

func space(s *statsapi.FsStats) *Space {
	if s == nil || s.UsedBytes == nil {
		return nil
	}
	out := Space{Bytes: *s.UsedBytes}
	if s.InodesUsed != nil {
		out.Inodes = *s.InodesUsed
	}
	return &out
}
