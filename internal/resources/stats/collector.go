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

	"keelson/internal/pods/pod"
	"keelson/internal/resources/cgroup"
	"keelson/internal/resources/machine"
)

// Config holds what a Collector is built from.
type Config struct {
	NodeName string
	Machine  machine.Info
	Host     fs.FS
	// Groups is where control groups are mounted; the zero value: nowhere that is
	// known, and the node's usage is told by /proc alone.
	Groups cgroup.Hierarchies
	// Tree is where the pods' groups are; nil: they have none, and the runtime is
	// asked.
	Tree tree
	// FromRuntime asks the runtime for all of it (gate PodAndContainerStatsFromCRI).
	FromRuntime bool
	Runtime     runtime
	// Pods are those that there is something of in the runtime. It must not block.
	Pods func() []Pod
	// Volumes are what is known of a pod's volumes; nil: nobody measures them. It
	// must not block. Before a summary RefreshVolumes has them looked at; it waits
	// for no file system that takes its time.
	Volumes        func(types.UID) []Volume
	RefreshVolumes func(context.Context)
	// System are the groups of the node's own programs, by the name under which
	// the summary shows them.
	System     map[string]string
	RootDir    string
	PodLogsDir string
	Log        *slog.Logger
}

// tree names the pods' groups.
type tree interface {
	// Parent is the group of a pod, Find that of one whose specification nobody has.
	Parent(p *v1.Pod) string
	Find(uid string) (string, bool)
	// PodsPath is the group of all pods, ParentPaths it and those of the classes.
	PodsPath() string
	ParentPaths() []string
}

// runtime tells what the kernel does not.
type runtime interface {
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error)
	ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error)
	ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error)
	ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error)
	PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error)
	ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error)
}

// Collector makes readings for those who ask.
type Collector struct {
	cfg      Config
	boot     time.Time
	complain rate.Sometimes

	mu    sync.Mutex
	last  *reading
	rates rates

	sandboxes sandboxImages

	layersMu sync.Mutex
	layers   *layers
}

// New makes a Collector. Nothing is read before somebody asks.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, rates: rates{}, complain: rate.Sometimes{First: 3, Interval: time.Minute}}
}

// Provider says where the figures of pods come from, as kubelet_metrics_provider
// names it.
func (c *Collector) Provider() string {
	if c.fromRuntime() {
		return providerRuntime
	}
	return providerCgroups
}

func (c *Collector) fromRuntime() bool { return c.cfg.FromRuntime || c.cfg.Tree == nil }

// read makes a reading, or shares one that was just made.
func (c *Collector) read(ctx context.Context, d cgroup.Detail) *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.last; r != nil && time.Since(r.at) < shared && (r.full || d < cgroup.Full) {
		return r
	}
	return c.readLocked(ctx, d)
}

// readAnew makes a reading.
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
			c.tell("boot time", err)
			boot = now
		}
		c.boot = boot
	}
	r := &reading{at: now, full: d == cgroup.Full}
	note := func(what string, err error) {
		if err != nil && r.failed == nil {
			r.failed = fmt.Errorf("%s: %w", what, err)
		}
		c.tell(what, err)
	}
	c.readNode(r, d, note)
	if c.fromRuntime() {
		c.askRuntime(ctx, r, note)
	} else {
		c.readPods(r, d, note)
	}
	c.rates.sweep()
	c.last = r
	return r
}

// tell logs what could not be read, now and then.
func (c *Collector) tell(what string, err error) {
	if err != nil {
		c.complain.Do(func() { c.cfg.Log.Warn("cannot read usage", "of", what, "err", err) })
	}
}

// group reads one group. A group that is gone is none, and no failure.
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

// measure fills in the rate.
func (c *Collector) measure(g *group, started time.Time) {
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
		// The root of the v2 tree keeps no account of memory.
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
	c.measure(&r.node, c.boot)
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
			c.measure(&g, g.use.Created)
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
		c.measure(&g, g.use.Created)
		r.parents = append(r.parents, g)
		if path == c.cfg.Tree.PodsPath() {
			r.system = append(r.system, systemReading{systemPods, g})
		}
	}
}

// readPods reads the groups of pods and containers.
func (c *Collector) readPods(r *reading, d cgroup.Detail, note func(string, error)) {
	for _, p := range c.cfg.Pods() {
		sandbox, ok := p.Have.ReadySandbox()
		if !ok && !p.Have.Live() {
			continue
		}
		pr := podReading{Pod: p, started: sandbox.CreatedAt}
		dir, ok := c.find(p)
		if !ok {
			continue // it is going
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
		c.measure(&pr.group, pr.started)
		names, err := c.cfg.Groups.Children(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			note("pod "+p.Have.Name, err)
		}
		read := func(id string) (group, bool) {
			name, ok := nameWith(names, id)
			if !ok {
				return group{}, false
			}
			g, ok, err := c.group(path.Join(dir, name), d)
			note("container of pod "+p.Have.Name, err)
			return g, ok
		}
		if sandbox.ID != "" {
			if g, ok := read(sandbox.ID); ok {
				c.measure(&g, sandbox.CreatedAt)
				pr.sandbox = &containerReading{Container: pod.Container{ID: sandbox.ID, StartedAt: sandbox.CreatedAt}, group: g}
				if len(g.use.Processes) > 0 {
					// Its first process is in the pod's network namespace, which may be the node's.
					// If it has just exited, there are no values.
					if net, err := machine.ReadTraffic(g.use.Processes[0]); err == nil {
						pr.net, pr.netAt = net, g.use.At
					}
				}
			}
		}
		for _, inst := range running(p.Have) {
			g, ok := read(inst.ID)
			if !ok {
				continue
			}
			c.measure(&g, inst.StartedAt)
			pr.processes += uint64(len(g.use.Processes))
			pr.containers = append(pr.containers, containerReading{Container: inst, group: g})
		}
		r.pods = append(r.pods, pr)
	}
}

// find is the group of a pod.
func (c *Collector) find(p Pod) (string, bool) {
	if p.Spec != nil {
		return c.cfg.Tree.Parent(p.Spec), true
	}
	return c.cfg.Tree.Find(string(p.Have.UID))
}

// running are the running containers, the newest of each name.
func running(have pod.Runtime) []pod.Container {
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

// nameWith finds the group of a container: runtimes put its ID in the name, with
// what systemd wants around it. What watches a container is not the container.
func nameWith(names []string, id string) (string, bool) {
	for _, n := range names {
		if strings.Contains(n, id) && !strings.Contains(n, "conmon") {
			return n, true
		}
	}
	return "", false
}
