package fakecri

import (
	"context"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Usage is what a container is reported to use.
type Usage struct {
	NanoCores      uint64 // CPU rate; the counter increases at this rate from the start
	WorkingSet     uint64 // bytes of memory
	WritableLayer  uint64 // bytes on disk
	InodesUsed     uint64
	MajorPageFault uint64
}

// defaultUsage is a small idle program.
var defaultUsage = Usage{NanoCores: 1_000_000, WorkingSet: 4 << 20, WritableLayer: 16 << 10, InodesUsed: 8}

// SetUsage sets the usage that is reported for a container.
func (r *Runtime) SetUsage(pod, name string, u Usage) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findLocked(pod, name)
	if err != nil {
		return err
	}
	r.usage[c.id] = u
	return nil
}

// ContainerStats measures one container.
func (r *Runtime) ContainerStats(
	_ context.Context, req *cri.ContainerStatsRequest,
) (*cri.ContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containerLocked(req.GetContainerId())
	if !ok {
		return nil, errNotFound("failed to find container")
	}
	return &cri.ContainerStatsResponse{Stats: r.statsLocked(c)}, nil
}

// ListContainerStats measures the running containers that match the filter.
func (r *Runtime) ListContainerStats(
	_ context.Context, req *cri.ListContainerStatsRequest,
) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{Stats: r.listStats(req.GetFilter())}, nil
}

// StreamContainerStats is ListContainerStats in several messages.
func (r *Runtime) StreamContainerStats(
	req *cri.StreamContainerStatsRequest, s cri.RuntimeService_StreamContainerStatsServer,
) error {
	return sendChunks(r, r.listStats(req.GetFilter()), func(items []*cri.ContainerStats) error {
		return s.Send(&cri.StreamContainerStatsResponse{ContainerStats: items})
	})
}

func (r *Runtime) listStats(f *cri.ContainerStatsFilter) []*cri.ContainerStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.ContainerStats
	for _, c := range r.sortedContainersLocked() {
		if c.state == cri.ContainerState_CONTAINER_RUNNING && matchID(f.GetId(), c.id) &&
			matchID(f.GetPodSandboxId(), c.sandboxID) && matchLabels(f.GetLabelSelector(), c.config.GetLabels()) {
			list = append(list, r.statsLocked(c))
		}
	}
	return list
}

func (r *Runtime) statsLocked(c *container) *cri.ContainerStats {
	now := time.Now().UnixNano()
	u, ok := r.usage[c.id]
	if !ok {
		u = defaultUsage
	}
	st := &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{
			Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(),
			Annotations: c.config.GetAnnotations(),
		},
		WritableLayer: &cri.FilesystemUsage{
			Timestamp: now, FsId: &cri.FilesystemIdentifier{Mountpoint: r.opts.ImageRoot},
			UsedBytes: value(u.WritableLayer), InodesUsed: value(u.InodesUsed),
		},
	}
	if c.state != cri.ContainerState_CONTAINER_RUNNING {
		return st
	}
	st.Cpu = cpuUsage(now, c.startedAt, u)
	st.Memory = memoryUsage(now, u, c.resources.GetMemoryLimitInBytes())
	return st
}

func cpuUsage(now, since int64, u Usage) *cri.CpuUsage {
	ran := uint64(max(0, now-since))
	return &cri.CpuUsage{
		Timestamp:            now,
		UsageCoreNanoSeconds: value(uint64(float64(ran) / 1e9 * float64(u.NanoCores))),
		UsageNanoCores:       value(u.NanoCores),
	}
}

func memoryUsage(now int64, u Usage, limit int64) *cri.MemoryUsage {
	m := &cri.MemoryUsage{
		Timestamp: now, WorkingSetBytes: value(u.WorkingSet), UsageBytes: value(u.WorkingSet),
		RssBytes: value(u.WorkingSet), PageFaults: value(0), MajorPageFaults: value(u.MajorPageFault),
	}
	if limit > 0 {
		m.AvailableBytes = value(uint64(max(0, limit-int64(u.WorkingSet))))
	}
	return m
}

func value(n uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: n} }

// PodSandboxStats measures one sandbox with its containers.
func (r *Runtime) PodSandboxStats(
	_ context.Context, req *cri.PodSandboxStatsRequest,
) (*cri.PodSandboxStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxLocked(req.GetPodSandboxId())
	if !ok {
		return nil, errNotFound("an error occurred when trying to find sandbox %s", req.GetPodSandboxId())
	}
	return &cri.PodSandboxStatsResponse{Stats: r.sandboxStatsLocked(s)}, nil
}

// ListPodSandboxStats measures the ready sandboxes that match the filter.
func (r *Runtime) ListPodSandboxStats(
	_ context.Context, req *cri.ListPodSandboxStatsRequest,
) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{Stats: r.listSandboxStats(req.GetFilter())}, nil
}

// StreamPodSandboxStats is ListPodSandboxStats in several messages.
func (r *Runtime) StreamPodSandboxStats(
	req *cri.StreamPodSandboxStatsRequest, s cri.RuntimeService_StreamPodSandboxStatsServer,
) error {
	return sendChunks(r, r.listSandboxStats(req.GetFilter()), func(items []*cri.PodSandboxStats) error {
		return s.Send(&cri.StreamPodSandboxStatsResponse{PodSandboxStats: items})
	})
}

func (r *Runtime) listSandboxStats(f *cri.PodSandboxStatsFilter) []*cri.PodSandboxStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.PodSandboxStats
	for _, s := range r.sortedSandboxesLocked() {
		if s.state == cri.PodSandboxState_SANDBOX_READY && matchID(f.GetId(), s.id) &&
			matchLabels(f.GetLabelSelector(), s.config.GetLabels()) {
			list = append(list, r.sandboxStatsLocked(s))
		}
	}
	return list
}

func (r *Runtime) sandboxStatsLocked(s *sandbox) *cri.PodSandboxStats {
	now := time.Now().UnixNano()
	out := &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{
			Id: s.id, Metadata: s.config.GetMetadata(), Labels: s.config.GetLabels(),
			Annotations: s.config.GetAnnotations(),
		},
		Linux: &cri.LinuxPodSandboxStats{},
	}
	var cores, core, memory, running uint64
	for _, c := range s.containers {
		if c.state != cri.ContainerState_CONTAINER_RUNNING {
			continue
		}
		st := r.statsLocked(c)
		out.Linux.Containers = append(out.Linux.Containers, st)
		cores += st.GetCpu().GetUsageNanoCores().GetValue()
		core += st.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		memory += st.GetMemory().GetWorkingSetBytes().GetValue()
		running++
	}
	out.Linux.Cpu = &cri.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(core), UsageNanoCores: value(cores)}
	out.Linux.Memory = memoryUsage(now, Usage{WorkingSet: memory}, 0)
	out.Linux.Process = &cri.ProcessUsage{Timestamp: now, ProcessCount: value(running + 1)}
	if !s.hostNetwork() {
		iface := &cri.NetworkInterfaceUsage{
			Name:     "eth0",
			RxBytes:  value(0),
			RxErrors: value(0),
			TxBytes:  value(0),
			TxErrors: value(0),
		}
		out.Linux.Network = &cri.NetworkUsage{Timestamp: now, DefaultInterface: iface}
	}
	return out
}
