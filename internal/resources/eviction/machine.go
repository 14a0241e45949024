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

	"keelson/internal/resources/machine"
	"keelson/internal/resources/stats"
)

// askRuntime bounds the question where the runtime keeps its things.
const askRuntime = 5 * time.Second

// readings are what others have measured of memory and of pods.
type readings interface {
	NodeMemory() (stats.Memory, error)
	// PodsMemory is of all pods together; ok is false where they have no limit.
	PodsMemory() (m stats.Memory, ok bool, err error)
	// Fresh is what pods use of memory now, Summary that and what they keep on disks.
	Fresh(context.Context) *statsapi.Summary
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// imageFS is the part of the runtime that tells where it keeps its things.
type imageFS interface {
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error)
}

// MachineConfig holds what a Machine is built from. Every field is required unless
// its comment says otherwise.
type MachineConfig struct {
	Stats   readings
	Runtime imageFS
	Host    fs.FS  // the machine's files
	RootDir string // the agent's
	MaxPIDs int64  // 0: not known
	// SeparateContainers lets the runtime keep the containers' writable layers
	// elsewhere than the images (gate KubeletSeparateDiskGC).
	SeparateContainers bool
	// Remeasure has volumes measured that were not within age. It does not wait for
	// those that take long.
	Remeasure func(ctx context.Context, age time.Duration)
	// Local tells which volumes of a pod take of the node's disk.
	Local func(types.UID) map[string]bool
	Log   *slog.Logger
}

// Machine measures the machine that this process runs on.
type Machine struct {
	cfg MachineConfig

	mu         sync.Mutex
	images     string // mount points; empty before the runtime has told
	containers string
	said       map[Signal]bool // could not be measured, which was said
}

// NewMachine makes a Machine.
func NewMachine(cfg MachineConfig) *Machine { return &Machine{cfg: cfg, said: map[Signal]bool{}} }

// Disks asks the runtime where it keeps images and writable layers, once. How full
// that is, the kernel knows better.
func (m *Machine) Disks(ctx context.Context) (Disks, error) {
	ctx, cancel := context.WithTimeout(ctx, askRuntime)
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
		return Disks{}, errors.New("read image file system: the runtime names none")
	}
	containers := images // runtimes from before the field keep both in one place
	if other := at(info.GetContainerFilesystems()); other != "" && m.cfg.SeparateContainers {
		containers = other
	}
	var d Disks
	if d.Images, err = apart(m.cfg.RootDir, images); err != nil {
		return Disks{}, err
	}
	if d.Containers, err = apart(images, containers); err != nil {
		return Disks{}, err
	}
	m.mu.Lock()
	m.images, m.containers = images, containers
	m.mu.Unlock()
	return d, nil
}

// apart reports whether two paths are on two file systems.
func apart(a, b string) (bool, error) {
	var sa, sb unix.Stat_t
	if err := unix.Stat(a, &sa); err != nil {
		return false, fmt.Errorf("find file system of %s: %w", a, err)
	}
	if err := unix.Stat(b, &sb); err != nil {
		return false, fmt.Errorf("find file system of %s: %w", b, err)
	}
	return sa.Dev != sb.Dev, nil
}

// Observe measures what is left. What cannot be measured is said when it begins.
func (m *Machine) Observe(_ context.Context, signals []Signal) Observations {
	out := Observations{}
	for _, s := range signals {
		o, known, err := m.observe(s)
		if known && err == nil {
			out[s] = o
		}
		m.mu.Lock()
		before := m.said[s]
		m.said[s] = err != nil
		m.mu.Unlock()
		if err != nil && !before {
			m.cfg.Log.Warn("cannot tell how much is left, so nothing is done about it", "signal", s, "err", err)
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
	if inodes { // some file systems make inodes as they need them and say 0 of 0
		return Observation{st.Inodes, int64(st.InodesFree), time.Now()}, st.Inodes > 0, err
	}
	return Observation{st.Capacity, int64(st.Available), time.Now()}, true, err
}

// Use tells what pods use now. Of volumes it is what they held a while ago at most:
// older figures are left out.
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

// useOf takes what there is to know from the stats of one pod.
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
		// The rest of what counts as the pod's own is the agent's doing.
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
