package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
)

// Config holds the configuration of a Collector.
type Config struct {
	NodeName string
	Machine  machine.Info
	Host     fs.FS
	// Groups are the mounted cgroup hierarchies. With the zero value the node's usage is read from /proc only.
	Groups cgroup.Hierarchies
	// Tree locates the cgroups of pods. Nil: pods have none, and their usage is queried from the runtime.
	Tree tree
	// FromRuntime queries all usage from the runtime (gate PodAndContainerStatsFromCRI).
	FromRuntime bool
	Runtime     runtime
	// Pods returns the pods that the runtime knows. It must not block.
	Pods func() []Pod
	// Volumes returns the usage of a pod's volumes. It must not block. Nil: volumes are not measured. RefreshVolumes
	// measures them before a summary. It does not wait for slow file systems.
	Volumes        func(types.UID) []Volume
	RefreshVolumes func(context.Context)
	// System are the cgroups of system containers, by their names in the summary.
	System     map[string]string
	RootDir    string
	PodLogsDir string
	Log        *slog.Logger
}

// tree locates the cgroups of pods.
type tree interface {
	// Parent returns the cgroup of a pod, and Find that of a pod without a known specification.
	Parent(p *v1.Pod) string
	Find(uid string) (string, bool)
	// PodsPath is the cgroup of all pods. ParentPaths are that one and those of the QoS classes.
	PodsPath() string
	ParentPaths() []string
}

// runtime provides what is not in the cgroups.
type runtime interface {
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error)
	ListContainerStats(
		context.Context, *runtimeapi.ListContainerStatsRequest,
	) (*runtimeapi.ListContainerStatsResponse, error)
	ListPodSandboxStats(
		context.Context, *runtimeapi.ListPodSandboxStatsRequest,
	) (*runtimeapi.ListPodSandboxStatsResponse, error)
	ListMetricDescriptors(
		context.Context, *runtimeapi.ListMetricDescriptorsRequest,
	) (*runtimeapi.ListMetricDescriptorsResponse, error)
	PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error)
	ListPodSandboxMetrics(
		context.Context, *runtimeapi.ListPodSandboxMetricsRequest,
	) (*runtimeapi.ListPodSandboxMetricsResponse, error)
}

// Collector reads usage on request.
type Collector struct {
	cfg      Config
	boot     time.Time
	logLimit rate.Sometimes

	mu    sync.Mutex
	last  *reading
	rates rates

	sandboxes sandboxImages

	layersMu sync.Mutex
	layers   *layers
}

// New returns a Collector. It reads nothing before the first request.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, rates: rates{}, logLimit: rate.Sometimes{First: 3, Interval: time.Minute}}
}

// Provider returns the source of pod stats, as in kubelet_metrics_provider.
func (c *Collector) Provider() string {
	if c.fromRuntime() {
		return providerRuntime
	}
	return providerCgroups
}

func (c *Collector) fromRuntime() bool { return c.cfg.FromRuntime || c.cfg.Tree == nil }

// read makes a reading, or returns a recent one.
func (c *Collector) read(ctx context.Context, d cgroup.Detail) *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.last; r != nil && time.Since(r.at) < readingTTL && (r.full || d < cgroup.Full) {
		return r
	}
	return c.readLocked(ctx, d)
}

// readAnew makes a reading, even if there is a recent one.
func (c *Collector) readAnew(ctx context.Context, d cgroup.Detail) *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readLocked(ctx, d)
}

func (c *Collector) readLocked(ctx context.Context, d cgroup.Detail) *reading {
	now := time.Now()
	if c.boot.IsZero() {
		boot, err := machine.BootTime(c.cfg.Host, now)
		if err != nil {
			c.logError("boot time", err)
			boot = now
		}
		c.boot = boot
	}
	r := &reading{at: now, full: d == cgroup.Full}
	note := func(what string, err error) {
		if err != nil && r.failed == nil {
			r.failed = fmt.Errorf("%s: %w", what, err)
		}
		c.logError(what, err)
	}
	c.readNode(r, d, note)
	if c.fromRuntime() {
		c.readFromRuntime(ctx, r, note)
	} else {
		c.readPods(r, d, note)
	}
	c.rates.removeStale()
	c.last = r
	return r
}

// logError logs a read failure, rate-limited.
func (c *Collector) logError(what string, err error) {
	if err != nil {
		c.logLimit.Do(func() { c.cfg.Log.Warn("failed to read usage", "source", what, "err", err) })
	}
}

// group reads a cgroup. ok is false, without an error, if it does not exist.
func (c *Collector) group(path string, d cgroup.Detail) (group, bool, error) {
	g := group{path: path}
	u, err := c.cfg.Groups.Usage(path, d)
	if errors.Is(err, fs.ErrNotExist) {
		return g, false, nil
	}
	if err != nil {
		return g, false, err
	}
	g.use = u
	if d == cgroup.Full {
		g.io = c.cfg.Groups.IOPressure(path)
	}
	return g, true, nil
}

// updateRate computes the CPU rate of a cgroup.
func (c *Collector) updateRate(g *group, started time.Time) {
	g.cores = c.rates.cores(g.path, sample{g.use.At, g.use.CPU.Total}, started)
}

func (c *Collector) readNode(r *reading, d cgroup.Detail, note func(string, error)) {
	var err error
	if r.memory, err = machine.ReadMemory(c.cfg.Host); err != nil {
		note("memory", err)
	}
	known := c.cfg.Groups.V2() || c.cfg.Groups.V1["cpuacct"] != ""
	if known {
		g, _, err := c.group("/", d)
		note("node", err)
		r.node = g
	}
	r.node.path = "/"
	if m := &r.node.use.Memory; !known || c.cfg.Groups.V2() {
		// The root of cgroup v2 has no memory accounting.
		m.Usage = r.memory.Total - min(r.memory.Free, r.memory.Total)
		m.WorkingSet = r.memory.Total - r.memory.Available()
		m.Swap = r.memory.SwapUsed()
	}
	if !known {
		r.node.use.At = r.at
		if r.node.use.CPU.Total, err = machine.ReadCPUTime(c.cfg.Host); err != nil {
			note("processors", err)
		}
	}
	if r.node.use.CPU.Pressure == nil {
		r.node.use.CPU.Pressure = cgroup.ParsePressure(machine.ReadPressure(c.cfg.Host, "cpu"))
	}
	if r.node.use.Memory.Pressure == nil {
		r.node.use.Memory.Pressure = cgroup.ParsePressure(machine.ReadPressure(c.cfg.Host, "memory"))
	}
	if r.node.io == nil {
		r.node.io = cgroup.ParsePressure(machine.ReadPressure(c.cfg.Host, "io"))
	}
	c.updateRate(&r.node, c.boot)
	if d == cgroup.Full {
		r.net, err = machine.ReadTraffic(0)
		note("network", err)
	}
	for _, name := range systemOrder {
		path := c.cfg.System[name]
		if path == "" {
			continue
		}
		g, ok, err := c.group(path, d)
		note(name, err)
		if ok {
			c.updateRate(&g, g.use.Created)
			r.system = append(r.system, systemReading{name, g})
		}
	}
	if c.cfg.Tree == nil {
		return
	}
	for _, path := range c.cfg.Tree.ParentPaths() {
		g, ok, err := c.group(path, d)
		note("pods", err)
		if !ok {
			continue
		}
		c.updateRate(&g, g.use.Created)
		r.parents = append(r.parents, g)
		if path == c.cfg.Tree.PodsPath() {
			r.system = append(r.system, systemReading{systemPods, g})
		}
	}
}

// readPods reads the cgroups of pods and containers.
func (c *Collector) readPods(r *reading, d cgroup.Detail, note func(string, error)) {
	for _, p := range c.cfg.Pods() {
		sandbox, ok := p.Have.ReadySandbox()
		if !ok && !p.Have.Live() {
			continue
		}
		pr := podReading{Pod: p, started: sandbox.CreatedAt}
		dir, ok := c.find(p)
		if !ok {
			continue // being removed
		}
		var err error
		pr.group, ok, err = c.group(dir, d)
		note("pod "+p.Have.Name, err)
		if !ok {
			continue
		}
		if pr.started.IsZero() {
			pr.started = pr.use.Created
		}
		c.updateRate(&pr.group, pr.started)
		names, err := c.cfg.Groups.Children(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			note("pod "+p.Have.Name, err)
		}
		read := func(id string) (group, bool) {
			name, ok := cgroupOfContainer(names, id)
			if !ok {
				return group{}, false
			}
			g, ok, err := c.group(path.Join(dir, name), d)
			note("container of pod "+p.Have.Name, err)
			return g, ok
		}
		if sandbox.ID != "" {
			if g, ok := read(sandbox.ID); ok {
				c.updateRate(&g, sandbox.CreatedAt)
				pr.sandbox = &containerReading{
					Container: pod.Container{ID: sandbox.ID, StartedAt: sandbox.CreatedAt},
					group:     g,
				}
				if len(g.use.Processes) > 0 {
					// Its first process is in the network namespace of the pod, which may be that of the node. If it
					// has just exited, there are no values.
					if net, err := machine.ReadTraffic(g.use.Processes[0]); err == nil {
						pr.net, pr.netAt = net, g.use.At
					}
				}
			}
		}
		for _, inst := range runningContainers(p.Have) {
			g, ok := read(inst.ID)
			if !ok {
				continue
			}
			c.updateRate(&g, inst.StartedAt)
			pr.processes += uint64(len(g.use.Processes))
			pr.containers = append(pr.containers, containerReading{Container: inst, group: g})
		}
		r.pods = append(r.pods, pr)
	}
}

// find returns the cgroup of a pod.
func (c *Collector) find(p Pod) (string, bool) {
	if p.Spec != nil {
		return c.cfg.Tree.Parent(p.Spec), true
	}
	return c.cfg.Tree.Find(string(p.Have.UID))
}

// runningContainers returns the running containers, the latest instance of each name.
func runningContainers(have pod.Runtime) []pod.Container {
	var out []pod.Container
	seen := map[string]bool{}
	for _, c := range have.Containers {
		if c.State == pod.StateRunning && !seen[c.Name] {
			seen[c.Name] = true
			out = append(out, c)
		}
	}
	return out
}

// cgroupOfContainer returns the name of a container's cgroup. Runtimes put its ID in the name, for systemd with a
// prefix and a suffix. The cgroup of conmon, which also contains the ID, is not the container's.
func cgroupOfContainer(names []string, id string) (string, bool) {
	for _, n := range names {
		if strings.Contains(n, id) && !strings.Contains(n, "conmon") {
			return n, true
		}
	}
	return "", false
}
