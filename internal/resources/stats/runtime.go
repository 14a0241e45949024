package stats

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
)

// layers are the sizes of writable layers, and the file systems of the runtime.
type layers struct {
	at         time.Time
	containers map[string]*runtimeapi.FilesystemUsage // by container ID
	images     *runtimeapi.FilesystemUsage
	writable   *runtimeapi.FilesystemUsage
}

// readLayers queries the runtime, or returns a recent result.
func (c *Collector) readLayers(ctx context.Context) (*layers, error) {
	c.layersMu.Lock()
	defer c.layersMu.Unlock()
	now := time.Now()
	if c.layers != nil && now.Sub(c.layers.at) < layersTTL {
		return c.layers, nil
	}
	l := &layers{at: now, containers: map[string]*runtimeapi.FilesystemUsage{}}
	info, err := c.cfg.Runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, err
	}
	if fs := info.GetImageFilesystems(); len(fs) > 0 {
		l.images = fs[0]
	}
	if fs := info.GetContainerFilesystems(); len(fs) > 0 {
		l.writable = fs[0]
	}
	list, err := c.cfg.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, err
	}
	for _, s := range list.GetStats() {
		l.containers[s.GetAttributes().GetId()] = s.GetWritableLayer()
	}
	c.layers = l
	return l, nil
}

// readFromRuntime reads the usage of pods from the runtime.
func (c *Collector) readFromRuntime(ctx context.Context, r *reading, note func(string, error)) {
	resp, err := c.cfg.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	note("pods", err)
	bySandbox := map[string]*runtimeapi.PodSandboxStats{}
	for _, s := range resp.GetStats() {
		bySandbox[s.GetAttributes().GetId()] = s
	}
	for _, p := range c.cfg.Pods() {
		sandbox, ok := p.Have.ReadySandbox()
		if !ok {
			continue
		}
		measured := bySandbox[sandbox.ID]
		if measured == nil {
			continue
		}
		linux := measured.GetLinux()
		pr := podReading{Pod: p, started: sandbox.CreatedAt, processes: linux.GetProcess().GetProcessCount().GetValue()}
		pr.group = c.asGroup("pod "+string(p.Have.UID), linux.GetCpu(), linux.GetMemory(), nil, sandbox.CreatedAt)
		if n := linux.GetNetwork(); n != nil {
			pr.netAt = time.Unix(0, n.GetTimestamp())
			if d := n.GetDefaultInterface(); d != nil {
				pr.net = append(pr.net, traffic(d))
			}
			for _, i := range n.GetInterfaces() {
				pr.net = append(pr.net, traffic(i))
			}
		}
		byID := map[string]*runtimeapi.ContainerStats{}
		for _, s := range linux.GetContainers() {
			byID[s.GetAttributes().GetId()] = s
		}
		for _, inst := range runningContainers(p.Have) {
			if s := byID[inst.ID]; s != nil {
				pr.containers = append(pr.containers, containerReading{
					Container: inst,
					group: c.asGroup(fmt.Sprintf("container %s", inst.ID), s.GetCpu(), s.GetMemory(), s.GetSwap(),
						startOf(inst)),
				})
			}
		}
		r.pods = append(r.pods, pr)
	}
}

func startOf(c pod.Container) time.Time { return c.StartedAt }

func traffic(i *runtimeapi.NetworkInterfaceUsage) machine.Traffic {
	return machine.Traffic{
		Name:     i.GetName(),
		RxBytes:  i.GetRxBytes().GetValue(),
		RxErrors: i.GetRxErrors().GetValue(),
		TxBytes:  i.GetTxBytes().GetValue(),
		TxErrors: i.GetTxErrors().GetValue(),
	}
}

// asGroup converts usage from the runtime. A rate that it does not report is computed.
func (c *Collector) asGroup(
	key string,
	cpu *runtimeapi.CpuUsage,
	mem *runtimeapi.MemoryUsage,
	swap *runtimeapi.SwapUsage,
	started time.Time,
) group {
	g := group{path: key}
	g.use = cgroup.Usage{At: time.Unix(0, cpu.GetTimestamp()), Created: started}
	g.use.CPU.Total = time.Duration(cpu.GetUsageCoreNanoSeconds().GetValue())
	m := &g.use.Memory
	m.Usage = mem.GetUsageBytes().GetValue()
	m.WorkingSet = mem.GetWorkingSetBytes().GetValue()
	m.RSS = mem.GetRssBytes().GetValue()
	m.Faults, m.MajorFaults = mem.GetPageFaults().GetValue(), mem.GetMajorPageFaults().GetValue()
	if a := mem.GetAvailableBytes(); a != nil && a.GetValue() > 0 {
		m.Limit = a.GetValue() + m.WorkingSet
	}
	m.Swap = swap.GetSwapUsageBytes().GetValue()
	if a := swap.GetSwapAvailableBytes(); a != nil {
		m.SwapLimit, m.SwapLimited = a.GetValue()+m.Swap, true
	}
	g.use.CPU.Pressure, m.Pressure = pressure(cpu.GetPsi()), pressure(mem.GetPsi())
	c.updateRate(&g, started)
	if n := cpu.GetUsageNanoCores(); n != nil {
		g.cores = n.GetValue()
	}
	return g
}

func pressure(p *runtimeapi.PsiStats) *cgroup.Pressure {
	if p == nil {
		return nil
	}
	stall := func(d *runtimeapi.PsiData) cgroup.Stall {
		return cgroup.Stall{
			Avg10:  d.GetAvg10(),
			Avg60:  d.GetAvg60(),
			Avg300: d.GetAvg300(),
			Total:  time.Duration(d.GetTotal()) * time.Microsecond,
		}
	}
	return &cgroup.Pressure{Some: stall(p.GetSome()), Full: stall(p.GetFull())}
}
