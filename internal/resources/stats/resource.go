package stats

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"keelson/internal/host/cgroup"
)

// The metrics of /metrics/resource. Autoscalers depend on them.
var (
	nodeCPU = counter("node_cpu_usage_seconds_total",
		"[STABLE] Cumulative cpu time consumed by the node in core-seconds")
	nodeMemory = gauge("node_memory_working_set_bytes", "[STABLE] Current working set of the node in bytes")
	nodeSwap   = gauge("node_swap_usage_bytes",
		"[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems")
	containerCPU = counter("container_cpu_usage_seconds_total",
		"[STABLE] Cumulative cpu time consumed by the container in core-seconds")
	containerMemory = gauge("container_memory_working_set_bytes",
		"[STABLE] Current working set of the container in bytes")
	containerSwap = gauge("container_swap_usage_bytes",
		"[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems")
	containerSwapMax = gauge("container_swap_limit_bytes",
		"[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems")
	containerStart = gauge("container_start_time_seconds",
		"[STABLE] Start time of the container since unix epoch in seconds")
	podCPU = counter("pod_cpu_usage_seconds_total",
		"[STABLE] Cumulative cpu time consumed by the pod in core-seconds")
	podMemory = gauge("pod_memory_working_set_bytes", "[STABLE] Current working set of the pod in bytes")
	podSwap   = gauge("pod_swap_usage_bytes",
		"[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems")
	resourceError = gauge("resource_scrape_error",
		"[STABLE] 1 if there was an error while getting container metrics, 0 otherwise")
)

// Resource gathers CPU time and memory of the node, pods and containers.
func (c *Collector) Resource() prometheus.Gatherer {
	return gatherer(func() []*dto.MetricFamily {
		r := c.read(context.Background(), cgroup.Core)
		f := newFamilies()
		n := &r.node.use
		f.add(nodeCPU, nil, n.CPU.Total.Seconds(), n.At)
		f.add(nodeMemory, nil, float64(n.Memory.WorkingSet), n.At)
		f.add(nodeSwap, nil, float64(r.memory.SwapUsed()), n.At)
		for i := range r.pods {
			resourceOfPod(f, &r.pods[i])
		}
		failed := 0.0
		if r.failed != nil {
			failed = 1
		}
		f.add(resourceError, nil, failed, time.Time{})
		return f.sorted()
	})
}

func resourceOfPod(f *families, p *podReading) {
	l := makeLabels("namespace", p.Have.Namespace, "pod", p.Have.Name)
	f.add(podCPU, l, p.use.CPU.Total.Seconds(), p.use.At)
	f.add(podMemory, l, float64(p.use.Memory.WorkingSet), p.use.At)
	f.add(podSwap, l, float64(p.use.Memory.Swap), p.use.At)
	for i := range p.containers {
		cr := &p.containers[i]
		l := l.with("container", cr.Name)
		at := cr.use.At
		f.add(containerCPU, l, cr.use.CPU.Total.Seconds(), at)
		f.add(containerMemory, l, float64(cr.use.Memory.WorkingSet), at)
		f.add(containerSwap, l, float64(cr.use.Memory.Swap), at)
		if m := &cr.use.Memory; m.SwapLimited {
			f.add(containerSwapMax, l, float64(m.SwapLimit), at)
		}
		f.add(containerStart, l, float64(cr.CreatedAt.UnixNano())/1e9, time.Time{})
	}
}
