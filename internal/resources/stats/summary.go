package stats

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
)

// systemPods is the name of the system container for all pods.
const systemPods = statsapi.SystemContainerPods

// systemOrder is the order of the other system containers.
var systemOrder = []string{
	statsapi.SystemContainerKubelet,
	statsapi.SystemContainerRuntime,
	statsapi.SystemContainerMisc,
}

// Summary returns /stats/summary: everything, or CPU time and memory only.
func (c *Collector) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	if onlyCPUAndMemory {
		r := c.read(ctx, cgroup.Core)
		return c.summarise(r, nil), nil
	}
	if c.cfg.Volumes != nil {
		c.cfg.RefreshVolumes(ctx)
	}
	r := c.read(ctx, cgroup.Full)
	d, err := c.readDisks(ctx)
	if err != nil {
		return nil, fmt.Errorf("read usage of file systems: %w", err)
	}
	return c.summarise(r, d), nil
}

// disks are the file systems of a summary.
type disks struct {
	*layers
	node       machine.Filesystem
	nodeAt     time.Time
	imageFS    *statsapi.FsStats
	writableFS *statsapi.FsStats // the image file system if the runtime reports no other
}

func (c *Collector) readDisks(ctx context.Context) (*disks, error) {
	l, err := c.readLayers(ctx)
	if err != nil {
		return nil, err
	}
	d := &disks{layers: l, nodeAt: time.Now()}
	if d.node, err = machine.ReadFilesystem(c.cfg.RootDir); err != nil {
		return nil, err
	}
	if d.imageFS, err = runtimeFS(l.images, l.at); err != nil {
		return nil, err
	}
	if d.writableFS, err = runtimeFS(l.writable, l.at); err != nil {
		return nil, err
	}
	if d.writableFS == nil {
		d.writableFS = d.imageFS
	}
	return d, nil
}

// runtimeFS returns the stats of a file system with the runtime's own usage.
func runtimeFS(u *runtimeapi.FilesystemUsage, at time.Time) (*statsapi.FsStats, error) {
	if u == nil {
		return nil, nil
	}
	st, err := machine.ReadFilesystem(u.GetFsId().GetMountpoint())
	if err != nil {
		return nil, err
	}
	out := fsStats(st, space{u.GetUsedBytes().GetValue(), u.GetInodesUsed().GetValue()}, at)
	return out, nil
}

// fsStats returns the stats of a file system with the given usage.
func fsStats(st machine.Filesystem, used space, at time.Time) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time:           metav1.NewTime(at),
		AvailableBytes: &st.Available,
		CapacityBytes:  &st.Capacity,
		UsedBytes:      &used.bytes,
		InodesFree:     &st.InodesFree,
		Inodes:         &st.Inodes,
		InodesUsed:     &used.inodes,
	}
}

// summarise converts a reading. Without disks the summary has CPU time and memory only.
func (c *Collector) summarise(r *reading, d *disks) *statsapi.Summary {
	full := d != nil
	n := &r.node
	s := &statsapi.Summary{Pods: []statsapi.PodStats{}}
	s.Node = statsapi.NodeStats{
		NodeName:  c.cfg.NodeName,
		StartTime: metav1.NewTime(c.boot),
		CPU:       cpuStats(n),
		Memory:    memoryStats(n, r.memory.Total),
		Swap:      c.nodeSwap(r),
	}
	for _, sys := range r.system {
		cs := statsapi.ContainerStats{
			Name:      sys.name,
			StartTime: metav1.NewTime(sys.use.Created),
			CPU:       cpuStats(&sys.group),
			Memory:    memoryStats(&sys.group, 0),
			Swap:      swapStats(&sys.group),
		}
		if full {
			cs.IO = ioStats(&sys.group)
		}
		s.Node.SystemContainers = append(s.Node.SystemContainers, cs)
	}
	if full {
		s.Node.IO = ioStats(n)
		s.Node.Network = networkStats(r.net, r.at)
		s.Node.Fs = fsStats(d.node, space{
			d.node.Capacity - min(d.node.Free, d.node.Capacity),
			d.node.Inodes - min(d.node.InodesFree, d.node.Inodes),
		}, d.nodeAt)
		s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: d.imageFS, ContainerFs: d.writableFS}
		s.Node.Rlimit = c.rlimit(r.at)
	}
	for i := range r.pods {
		s.Pods = append(s.Pods, c.podStats(&r.pods[i], d))
	}
	return s
}

func (c *Collector) rlimit(at time.Time) *statsapi.RlimitStats {
	running, err := machine.ReadPIDs(c.cfg.Host)
	if err != nil {
		c.logError("processes", err)
		return nil
	}
	longest := c.cfg.Machine.MaxPIDs
	return &statsapi.RlimitStats{Time: metav1.NewTime(at), MaxPID: &longest, NumOfRunningProcesses: &running}
}

func (c *Collector) podStats(p *podReading, d *disks) statsapi.PodStats {
	full := d != nil
	out := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: p.Have.Name, Namespace: p.Have.Namespace, UID: string(p.Have.UID)},
		StartTime:  metav1.NewTime(p.started),
		CPU:        cpuStats(&p.group),
		Memory:     memoryStats(&p.group, 0),
		Swap:       swapStats(&p.group),
		Containers: []statsapi.ContainerStats{},
	}
	var own space // local ephemeral storage
	for i := range p.containers {
		cr := &p.containers[i]
		cs := statsapi.ContainerStats{
			Name:      cr.Name,
			StartTime: metav1.NewTime(cr.CreatedAt),
			CPU:       cpuStats(&cr.group),
			Memory:    memoryStats(&cr.group, 0),
			Swap:      swapStats(&cr.group),
		}
		if full {
			cs.IO = ioStats(&cr.group)
			cs.Rootfs = rootfs(d, cr.ID)
			if cs.Rootfs != nil {
				own.add(space{*cs.Rootfs.UsedBytes, *cs.Rootfs.InodesUsed})
			}
			logs, err := logsOf(c.cfg.PodLogsDir, p.Have.Ref, cr.Name)
			c.logError("logs", err)
			own.add(logs)
			cs.Logs = fsStats(d.node, logs, d.nodeAt)
		}
		out.Containers = append(out.Containers, cs)
	}
	if !full {
		return out
	}
	out.IO = ioStats(&p.group)
	if len(p.net) > 0 {
		out.Network = networkStats(p.net, p.netAt)
	}
	if p.processes > 0 {
		out.ProcessStats = &statsapi.ProcessStats{ProcessCount: &p.processes}
	}
	hosts, err := ofFile(filepath.Join(c.cfg.RootDir, "pods", string(p.Have.UID), "etc-hosts"))
	c.logError("hosts file", err)
	own.add(hosts)
	messages, err := messagesOf(filepath.Join(c.cfg.RootDir, "pods", string(p.Have.UID), "containers"))
	c.logError("termination messages", err)
	own.add(messages)
	if c.cfg.Volumes != nil {
		for _, v := range c.cfg.Volumes(p.Have.UID) {
			out.VolumeStats = append(out.VolumeStats, volumeStats(v, p.Have.Namespace))
			if v.Ephemeral {
				own.add(space{v.Used, v.InodesUsed})
			}
		}
	}
	out.EphemeralStorage = fsStats(d.node, own, d.nodeAt)
	return out
}

// rootfs returns the stats of a container's writable layer, or nil if the runtime does not report it.
func rootfs(d *disks, id string) *statsapi.FsStats {
	u := d.containers[id]
	if u == nil || d.writableFS == nil {
		return nil
	}
	out := *d.writableFS
	used, inodes := u.GetUsedBytes().GetValue(), u.GetInodesUsed().GetValue()
	out.Time, out.UsedBytes, out.InodesUsed = metav1.NewTime(time.Unix(0, u.GetTimestamp())), &used, &inodes
	return &out
}

func volumeStats(v Volume, namespace string) statsapi.VolumeStats {
	out := statsapi.VolumeStats{
		Name: v.Name,
		FsStats: statsapi.FsStats{
			Time:           metav1.NewTime(v.At),
			AvailableBytes: &v.Available,
			CapacityBytes:  &v.Capacity,
			UsedBytes:      &v.Used,
			InodesFree:     &v.InodesFree,
			Inodes:         &v.Inodes,
			InodesUsed:     &v.InodesUsed,
		},
	}
	if v.Claim != "" {
		out.PVCRef = &statsapi.PVCReference{Name: v.Claim, Namespace: namespace}
	}
	if v.Abnormal != nil {
		out.VolumeHealthStats = &statsapi.VolumeHealthStats{Abnormal: *v.Abnormal}
	}
	return out
}

func cpuStats(g *group) *statsapi.CPUStats {
	total := uint64(g.use.CPU.Total)
	cores := g.cores
	return &statsapi.CPUStats{
		Time:                 metav1.NewTime(g.use.At),
		UsageNanoCores:       &cores,
		UsageCoreNanoSeconds: &total,
		PSI:                  psiStats(g.use.CPU.Pressure),
	}
}

// memoryStats returns memory stats. What is available is computed from the limit, or from capacity if that is not zero.
// Without either it is not set.
func memoryStats(g *group, capacity uint64) *statsapi.MemoryStats {
	m := g.use.Memory
	out := &statsapi.MemoryStats{
		Time:            metav1.NewTime(g.use.At),
		UsageBytes:      &m.Usage,
		WorkingSetBytes: &m.WorkingSet,
		RSSBytes:        &m.RSS,
		PageFaults:      &m.Faults,
		MajorPageFaults: &m.MajorFaults,
		PSI:             psiStats(m.Pressure),
	}
	limit := m.Limit
	if capacity > 0 {
		limit = capacity
	}
	if limit > 0 {
		left := limit - min(m.WorkingSet, limit)
		out.AvailableBytes = &left
	}
	return out
}

func ioStats(g *group) *statsapi.IOStats {
	return &statsapi.IOStats{Time: metav1.NewTime(g.use.At), PSI: psiStats(g.io)}
}

func psiStats(p *cgroup.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(s cgroup.Stall) statsapi.PSIData {
		return statsapi.PSIData{
			Total:  uint64(s.Total / time.Microsecond),
			Avg10:  s.Avg10,
			Avg60:  s.Avg60,
			Avg300: s.Avg300,
		}
	}
	return &statsapi.PSIStats{Full: data(p.Full), Some: data(p.Some)}
}

func swapStats(g *group) *statsapi.SwapStats {
	used := g.use.Memory.Swap
	out := &statsapi.SwapStats{Time: metav1.NewTime(g.use.At), SwapUsageBytes: &used}
	if m := &g.use.Memory; m.SwapLimited {
		left := m.SwapLimit - min(m.Swap, m.SwapLimit)
		out.SwapAvailableBytes = &left
	}
	return out
}

func (c *Collector) nodeSwap(r *reading) *statsapi.SwapStats {
	used, left := r.memory.SwapUsed(), min(r.memory.SwapFree, r.memory.SwapTotal)
	return &statsapi.SwapStats{Time: metav1.NewTime(r.node.use.At), SwapAvailableBytes: &left, SwapUsageBytes: &used}
}

func networkStats(net []machine.Traffic, at time.Time) *statsapi.NetworkStats {
	out := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for _, t := range net {
		out.Interfaces = append(out.Interfaces, interfaceStats(t))
	}
	if i := slices.IndexFunc(out.Interfaces,
		func(s statsapi.InterfaceStats) bool { return s.Name == defaultInterface }); i >= 0 {
		out.InterfaceStats = out.Interfaces[i]
	}
	return out
}

func interfaceStats(t machine.Traffic) statsapi.InterfaceStats {
	return statsapi.InterfaceStats{
		Name:     t.Name,
		RxBytes:  &t.RxBytes,
		RxErrors: &t.RxErrors,
		TxBytes:  &t.TxBytes,
		TxErrors: &t.TxErrors,
	}
}
