package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// ground is a fake node in a directory. It has the cgroups of one pod with two containers, of which one has exited.
type ground struct {
	t      testing.TB
	dir    string
	groups cgroup.Hierarchies
	cfg    Config
	asked  int // calls of ListContainerStats
	broken error
	odd    []*runtimeapi.Metric // additional ones of the sandbox
}

const (
	podUID     = "11111111-2222-3333-4444-555555555555"
	podDir     = "/kubepods/burstable/pod" + podUID
	sandboxID  = "aaaa000000000000"
	mainID     = "bbbb000000000000"
	mebi       = 1 << 20
	hostMemory = 8 << 30
)

var began = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

func newGround(t testing.TB, v2 bool) *ground {
	t.Helper()
	g := &ground{t: t, dir: t.TempDir()}
	g.groups = cgroup.Hierarchies{
		V1: map[string]string{
			"cpu":     g.dir + "/cpu",
			"cpuacct": g.dir + "/cpuacct",
			"memory":  g.dir + "/memory",
			"pids":    g.dir + "/pids",
		},
	}
	if v2 {
		g.groups = cgroup.Hierarchies{Unified: g.dir + "/unified"}
	}
	tree, err := cgroup.New(cgroup.Config{Driver: cgroup.Cgroupfs, Root: "/", Hierarchies: g.groups})
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(g.dir, "root")
	g.cfg = Config{
		NodeName: "node1",
		Machine:  machine.Info{CPUs: 2, Memory: hostMemory, MaxPIDs: 32768, Kernel: "6.1", BootID: "boot"},
		Groups:   g.groups,
		Tree:     tree,
		Host: fstest.MapFS{
			"proc/meminfo": {
				Data: []byte(
					"MemTotal: 8388608 kB\nMemFree: 4194304 kB\nInactive(file): 1048576 kB\nSwapTotal: 1024 kB\n" +
						"SwapFree: 1000 kB\n"),
			},
			"proc/loadavg": {Data: []byte("0 0 0 2/345 6789\n")},
			"proc/uptime":  {Data: []byte("1000.00 1.00\n")},
			"proc/pressure/cpu": {
				Data: []byte(
					"some avg10=1.50 avg60=2.50 avg300=3.50 total=4500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
			},
		},
		Runtime:    g,
		RootDir:    root,
		PodLogsDir: filepath.Join(g.dir, "logs"),
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
		Pods:       func() []Pod { return []Pod{g.pod()} },
	}
	for _, path := range []string{
		"/", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort", podDir, podDir + "/" + sandboxID,
		podDir + "/" + mainID,
	} {
		g.use(path, 500*time.Millisecond, 100*mebi, 0)
	}
	g.use(podDir+"/"+mainID, 200*time.Millisecond, 60*mebi, 64*mebi)
	g.write("root/pods/"+podUID+"/etc-hosts", "x")
	g.write("logs/default_web_"+podUID+"/main/0.log", "lines")
	return g
}

func (g *ground) pod() Pod {
	spec := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: podUID},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name:      "main",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}},
			}, {Name: "done"}},
		},
	}
	spec.Status.QOSClass = v1.PodQOSBurstable
	return Pod{
		Spec: spec,
		Have: pod.Runtime{
			Ref:       pod.RefOf(spec),
			Sandboxes: []pod.Sandbox{{ID: sandboxID, Ready: true, CreatedAt: began}},
			Containers: []pod.Container{
				{
					ID:        mainID,
					Name:      "main",
					State:     pod.StateRunning,
					Image:     "app:1",
					CreatedAt: began.Add(time.Second),
					StartedAt: began.Add(2 * time.Second),
				},
				{ID: "cccc", Name: "main", State: pod.StateRunning, CreatedAt: began},
				{ID: "dddd", Name: "done", State: pod.StateExited, CreatedAt: began},
			},
		},
	}
}

func (g *ground) write(path, text string) {
	g.t.Helper()
	path = filepath.Join(g.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// use writes the usage of a cgroup to its files.
func (g *ground) use(path string, cpu time.Duration, memory, limit uint64) {
	if g.groups.V2() {
		max := "max"
		if limit > 0 {
			max = strconv.FormatUint(limit, 10)
		}
		for file, text := range map[string]string{
			"cpu.stat": fmt.Sprintf("usage_usec %d\nuser_usec 3000\nsystem_usec 2000\nnr_periods 7\nnr_throttled "+
				"2\nthrottled_usec 1000000\n", cpu.Microseconds()),
			"memory.current":      fmt.Sprint(memory),
			"memory.max":          max,
			"memory.swap.current": "4096",
			"memory.swap.max":     "8192",
			"cpu.max":             "20000 100000",
			"cpu.weight":          "100",
			"memory.stat": fmt.Sprintf("anon %d\nfile 4096\ninactive_file %d\npgfault 9\npgmajfault 1\n",
				memory/2, 10*mebi),
			"memory.events": "low 0\nmax 3\noom 1\noom_kill 1\n",
			"cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n" +
				"full avg10=0.00 avg60=0.00 avg300=0.00 total=8\n",
			"memory.pressure": "some avg10=0.50 avg60=0.00 avg300=0.00 total=2000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 " +
				"total=1000000\n",
			"cgroup.procs": "",
			"pids.current": "4",
			"pids.max":     "max",
			"io.stat":      "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n",
			"io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 " +
				"total=3\n",
		} {
			g.write("unified"+path+"/"+file, text)
		}
		return
	}
	if limit == 0 {
		limit = 9223372036854771712
	}
	for file, text := range map[string]string{
		"cpuacct/%s/cpuacct.usage":              fmt.Sprint(cpu.Nanoseconds()),
		"cpuacct/%s/cpuacct.stat":               "user 3\nsystem 2\n",
		"cpu/%s/cpu.shares":                     "51",
		"cpu/%s/cpu.cfs_period_us":              "100000",
		"cpu/%s/cpu.cfs_quota_us":               "20000",
		"cpu/%s/cpu.stat":                       "nr_periods 7\nnr_throttled 2\nthrottled_time 1000000000\n",
		"memory/%s/memory.usage_in_bytes":       fmt.Sprint(memory),
		"memory/%s/memory.limit_in_bytes":       fmt.Sprint(limit),
		"memory/%s/memory.memsw.limit_in_bytes": "9223372036854771712",
		"memory/%s/memory.stat": fmt.Sprintf("cache 1\nrss 2\npgfault 5\npgmajfault 0\ntotal_rss %d\n"+
			"total_cache 4096\ntotal_inactive_file %d\ntotal_pgfault 9\ntotal_pgmajfault 1\ntotal_swap 4096\n",
			memory/2,
			10*mebi),
		"memory/%s/cgroup.procs":       "",
		"pids/%s/pids.current":         "4",
		"pids/%s/pids.max":             "max",
		"memory/%s/memory.failcnt":     "3",
		"memory/%s/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
	} {
		g.write(fmt.Sprintf(file, path), text)
	}
}

func (g *ground) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	fs := []*runtimeapi.FilesystemUsage{{
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: g.dir},
		UsedBytes:  value(1000),
		InodesUsed: value(10),
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, g.broken
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

func (g *ground) ListContainerStats(
	context.Context, *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	g.asked++
	return &runtimeapi.ListContainerStatsResponse{Stats: []*runtimeapi.ContainerStats{{
		Attributes:    &runtimeapi.ContainerAttributes{Id: mainID},
		WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: value(4096), InodesUsed: value(3)},
	}}}, nil
}

func (g *ground) ListPodSandboxStats(
	context.Context, *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	now := time.Now().UnixNano()
	cpu := &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(5e9), UsageNanoCores: value(7)}
	mem := &runtimeapi.MemoryUsage{
		Timestamp:       now,
		WorkingSetBytes: value(20 * mebi),
		UsageBytes:      value(30 * mebi),
		AvailableBytes:  value(44 * mebi),
	}
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: []*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: sandboxID},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu:     cpu,
			Memory:  mem,
			Process: &runtimeapi.ProcessUsage{ProcessCount: value(3)},
			Network: &runtimeapi.NetworkUsage{
				Timestamp:        now,
				DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: value(11)},
			},
			Containers: []*runtimeapi.ContainerStats{{
				Attributes: &runtimeapi.ContainerAttributes{Id: mainID},
				Cpu:        cpu,
				Memory:     mem,
				Swap:       &runtimeapi.SwapUsage{SwapAvailableBytes: value(4096), SwapUsageBytes: value(1024)},
			}},
		},
	}}}, nil
}

func (g *ground) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	if !req.GetVerbose() || req.GetPodSandboxId() != sandboxID {
		return nil, fmt.Errorf("no sandbox %q, or not asked for all of it", req.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Info: map[string]string{"info": `{"pid": 1, "image": "registry.k8s.io/pause:3.10.1"}`},
	}, nil
}

func (g *ground) ListMetricDescriptors(
	context.Context, *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: []*runtimeapi.MetricDescriptor{
		{Name: "container_threads", Help: "Threads.", LabelKeys: []string{"pod", "container"}},
		{Name: "container_oom_events_total", Help: "Kills.", LabelKeys: []string{"container"}}}}, g.broken
}

func (g *ground) ListPodSandboxMetrics(
	context.Context, *runtimeapi.ListPodSandboxMetricsRequest,
) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	threads := func(n uint64, labels ...string) *runtimeapi.Metric {
		return &runtimeapi.Metric{
			Name:        "container_threads",
			MetricType:  runtimeapi.MetricType_GAUGE,
			LabelValues: labels,
			Value:       value(n),
		}
	}
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: []*runtimeapi.PodSandboxMetrics{{
		PodSandboxId: sandboxID,
		Metrics:      append([]*runtimeapi.Metric{threads(5, "web", "")}, g.odd...),
		ContainerMetrics: []*runtimeapi.ContainerMetrics{{
			ContainerId: mainID,
			Metrics: []*runtimeapi.Metric{threads(4, "web", "main"),
				{Name: "container_oom_events_total", Timestamp: 7e9, LabelValues: []string{"main"}, Value: value(2)}},
		}},
	}}}, nil
}

// both runs a test on cgroup v1 and v2.
func both(t *testing.T, f func(*testing.T, bool)) {
	t.Run("v1", func(t *testing.T) { f(t, false) })
	t.Run("v2", func(t *testing.T) { f(t, true) })
}

func TestSummary(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-37")
	parity.ProvesPart(t, 3, "SRV-39")
	parity.ProvesPart(t, 2, "SRV-38")
	parity.ProvesPart(t, 2, "SRV-40")
	parity.ProvesPart(t, 2, "SRV-41")
	parity.ProvesPart(t, 2, "SRV-42")
	parity.ProvesPart(t, 2, "SRV-44")
	parity.ProvesPart(t, 2, "EVIC-03")
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		g.cfg.System = map[string]string{"kubelet": "/kubepods/besteffort", "runtime": "/nothing"}
		no := false
		looked := false
		g.cfg.RefreshVolumes = func(context.Context) { looked = true }
		g.cfg.Volumes = func(types.UID) []Volume {
			if !looked {
				t.Error("volumes are shown that were not measured")
			}
			return []Volume{{
				Name:       "data",
				Claim:      "claim",
				Capacity:   100,
				Available:  40,
				Used:       60,
				Inodes:     10,
				InodesUsed: 2,
				Abnormal:   &no,
			},
				{Name: "tmp", Used: 500, InodesUsed: 5, Ephemeral: true}}
		}
		c := New(g.cfg)
		s, err := c.Summary(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		n := s.Node
		if n.NodeName != "node1" || n.StartTime.IsZero() || *n.CPU.UsageCoreNanoSeconds != 5e8 ||
			n.CPU.UsageNanoCores == nil ||
			*n.Rlimit.MaxPID != 32768 || *n.Rlimit.NumOfRunningProcesses != 345 || *n.Swap.SwapUsageBytes != 24<<10 ||
			*n.Swap.SwapAvailableBytes != 1000<<10 ||
			*n.Fs.CapacityBytes == 0 || *n.Fs.Inodes == 0 || *n.Runtime.ImageFs.UsedBytes != 1000 ||
			*n.Runtime.ContainerFs.InodesUsed != 10 || n.Network == nil {
			t.Errorf("node %s", show(n))
		}
		// The node has no limit: its capacity is the memory of the machine. The root of cgroup v2 has no memory
		// accounting.
		working := uint64(90 * mebi)
		if v2 {
			working = 3 << 30
		}
		if *n.Memory.WorkingSetBytes != working || *n.Memory.AvailableBytes != hostMemory-working {
			t.Errorf("memory of the node %s", show(n.Memory))
		}
		if v2 != (n.Memory.PSI != nil) || n.IO == nil {
			t.Errorf("pressure %s", show(n.Memory))
		}
		var names []string
		for _, sys := range n.SystemContainers {
			names = append(names, sys.Name)
		}
		if !slices.Equal(names, []string{"kubelet", "pods"}) {
			t.Errorf("system containers %v", names)
		}
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
			t.Fatalf("pods %s", show(s.Pods))
		}
		p := s.Pods[0]
		if p.PodRef != (statsapi.PodReference{
			Name:      "web",
			Namespace: "default",
			UID:       podUID,
		}) || !p.StartTime.Time.Equal(began) ||
			*p.Memory.UsageBytes != 100*mebi || p.Memory.AvailableBytes != nil || *p.Swap.SwapUsageBytes != 4096 {
			t.Errorf("pod %s", show(p))
		}
		m := p.Containers[0]
		if m.Name != "main" || !m.StartTime.Time.Equal(began.Add(time.Second)) || *m.CPU.UsageCoreNanoSeconds != 2e8 ||
			*m.Memory.WorkingSetBytes != 50*mebi ||
			*m.Memory.AvailableBytes != 14*mebi || *m.Memory.RSSBytes != 30*mebi || *m.Memory.PageFaults != 9 ||
			*m.Memory.MajorPageFaults != 1 ||
			*m.Rootfs.UsedBytes != 4096 || *m.Rootfs.InodesUsed != 3 || *m.Rootfs.CapacityBytes == 0 ||
			*m.Logs.InodesUsed != 1 {
			t.Errorf("container %s", show(m))
		}
		if v2 && (*m.Swap.SwapAvailableBytes != 4096 || m.Memory.PSI.Some.Avg10 != 0.5 ||
			m.Memory.PSI.Full.Total != 1000000 || m.IO.PSI.Some.Total != 7) {
			t.Errorf("container on v2 %s", show(m))
		}
		if !v2 && n.CPU.PSI.Some != (statsapi.PSIData{Total: 4500, Avg10: 1.5, Avg60: 2.5, Avg300: 3.5}) {
			t.Errorf("pressure on processors %s", show(n.CPU))
		}
		if *p.CPU.UsageCoreNanoSeconds != 5e8 || p.CPU.UsageNanoCores == nil || *p.Memory.WorkingSetBytes != 90*mebi ||
			p.ProcessStats != nil {
			t.Errorf("pod %s", show(p))
		}
		// The ephemeral storage of the pod: layer, log, hosts file and the volume without a claim.
		if own := *p.EphemeralStorage.UsedBytes; own != 4096+500+*m.Logs.UsedBytes+4096 ||
			*p.EphemeralStorage.InodesUsed != 3+5+1+1 {
			t.Errorf("ephemeral storage %s", show(p.EphemeralStorage))
		}
		if len(p.VolumeStats) != 2 || p.VolumeStats[0].PVCRef.Name != "claim" ||
			p.VolumeStats[0].PVCRef.Namespace != "default" || *p.VolumeStats[0].UsedBytes != 60 ||
			p.VolumeStats[1].PVCRef != nil || p.VolumeStats[0].VolumeHealthStats == nil ||
			p.VolumeStats[0].VolumeHealthStats.Abnormal || p.VolumeStats[1].VolumeHealthStats != nil {
			t.Errorf("volumes %s", show(p.VolumeStats))
		}
	})
}

// TestSummaryFormat checks that each field is there, under the name that clients know.
func TestSummaryFormat(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-37")
	parity.ProvesPart(t, 3, "SRV-39")
	parity.ProvesPart(t, 2, "SRV-40")
	g := newGround(t, true)
	g.cfg.System = map[string]string{"kubelet": "/kubepods/besteffort"}
	g.cfg.RefreshVolumes = func(context.Context) {}
	g.cfg.Volumes = func(types.UID) []Volume {
		return []Volume{{Name: "data", Claim: "claim", Capacity: 100, Available: 40, Used: 60, At: began}}
	}
	g.write("unified"+podDir+"/"+mainID+"/cgroup.procs", fmt.Sprintf("%d\n", os.Getpid()))
	c := New(g.cfg)
	s, err := c.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	expand := func(of, fields string) (out []string) {
		for _, f := range strings.Fields(fields) {
			out = append(out, of+"."+f)
		}
		return out
	}
	const cpu = "time usageNanoCores usageCoreNanoSeconds psi"
	const memory = "time availableBytes usageBytes workingSetBytes rssBytes pageFaults majorPageFaults psi"
	const swap = "time swapAvailableBytes swapUsageBytes"
	const fs = "time availableBytes capacityBytes usedBytes inodesFree inodes inodesUsed"
	const container = "pods.0.containers.0"
	for _, paths := range [][]string{
		expand("node", "nodeName startTime systemContainers.0.name systemContainers.1.name"), expand("node.cpu", cpu),
		expand("node.memory", memory), expand("node.io", "time psi"), expand("node.network", "time"),
		expand("node.fs", fs),
		expand("node.runtime.imageFs", fs), expand("node.runtime.containerFs", fs),
		expand("node.rlimit", "time maxpid curproc"), expand("node.swap", swap),
		expand("pods.0",
			"startTime podRef.name podRef.namespace podRef.uid process_stats.process_count swap.swapUsageBytes"),
		expand("pods.0.cpu", cpu), expand("pods.0.io", "time psi"),
		expand("pods.0.memory", "usageBytes workingSetBytes rssBytes pageFaults majorPageFaults psi"),
		expand("pods.0.ephemeral-storage", fs), expand("pods.0.volume.0", fs+" name pvcRef.name pvcRef.namespace"),
		expand(container, "name startTime"), expand(container+".cpu", cpu), expand(container+".memory", memory),
		expand(container+".io", "time psi"), expand(container+".rootfs", fs), expand(container+".logs", fs),
		expand(container+".swap", swap),
		expand(container+".cpu.psi",
			"full.total full.avg10 full.avg60 full.avg300 some.total some.avg10 some.avg60 some.avg300"),
	} {
		for _, path := range paths {
			if !reaches(tree, strings.Split(path, ".")) {
				t.Errorf("there is no %s in the summary", path)
			}
		}
	}
	if reaches(tree, strings.Split(container+".userDefinedMetrics", ".")) {
		t.Error("there are metrics of the users' own, which are not collected")
	}
	if t.Failed() {
		t.Log(show(s))
	}
}

// reaches reports whether the path leads to a value.
func reaches(in any, path []string) bool {
	if len(path) == 0 {
		return in != nil
	}
	switch v := in.(type) {
	case map[string]any:
		next, there := v[path[0]]
		return there && reaches(next, path[1:])
	case []any:
		i, err := strconv.Atoi(path[0])
		return err == nil && i < len(v) && reaches(v[i], path[1:])
	}
	return false
}

// TestSummaryEphemeralContainers checks that running ephemeral containers are shown like other containers.
func TestSummaryEphemeralContainers(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-44")
	g := newGround(t, true)
	const debugID = "eeee000000000000"
	g.use(podDir+"/"+debugID, 100*time.Millisecond, 5*mebi, 0)
	p := g.pod()
	p.Spec.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"},
	}}
	p.Have.Containers = append(p.Have.Containers, pod.Container{
		ID:        debugID,
		Name:      "debug",
		State:     pod.StateRunning,
		CreatedAt: began,
	})
	g.cfg.Pods = func() []Pod { return []Pod{p} }
	s, err := New(g.cfg).Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range s.Pods[0].Containers {
		names = append(names, c.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"debug", "main"}) {
		t.Errorf("containers %v", names)
	}
}

func TestSummaryOnlyCPUAndMemory(t *testing.T) {
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		g.broken = errors.New("no call expected")
		s, err := New(g.cfg).Summary(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if n, p := s.Node, s.Pods[0]; n.Network != nil || n.Fs != nil || n.Runtime != nil || n.Rlimit != nil ||
			n.IO != nil ||
			p.EphemeralStorage != nil ||
			p.IO != nil || p.Containers[0].Rootfs != nil || p.Containers[0].Logs != nil ||
			*p.Containers[0].Memory.WorkingSetBytes != 50*mebi || n.Swap == nil {
			t.Errorf("%s", show(s))
		}
		if _, err := New(g.cfg).Summary(t.Context(), false); err == nil {
			t.Error("a runtime that fails went unnoticed")
		}
	})
}

// One reading is reused for all requests within a second, and the runtime is called rarely.
func TestReadingsAreReused(t *testing.T) {
	parity.Differs(t, "SRV-45", "0050")
	g := newGround(t, true)
	c := New(g.cfg)
	for range 3 {
		if _, err := c.Summary(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if g.asked != 1 {
		t.Errorf("the runtime was asked %d times", g.asked)
	}
	first := c.last
	if _, err := c.Resource().Gather(); err != nil || c.last != first {
		t.Errorf("a reading was not shared: %v", err)
	}
	if g.asked != 1 {
		t.Errorf("the runtime was asked %d times for what it has nothing to say about", g.asked)
	}
	for _, step := range []struct {
		age  time.Duration
		anew bool
	}{{500 * time.Millisecond, false}, {time.Second, true}} {
		first.at = time.Now().Add(-step.age)
		if _, err := c.Summary(t.Context(), false); err != nil || (c.last != first) != step.anew {
			t.Errorf("after %v there was another reading: %t, %v", step.age, c.last != first, err)
		}
	}
}

func TestRates(t *testing.T) {
	parity.Differs(t, "SRV-45", "0050")
	r := rates{}
	at := func(seconds float64, cpu float64) uint64 {
		n := r.cores("/a", sample{began.Add(time.Duration(seconds * 1e9)), time.Duration(cpu * 1e9)}, began)
		r.removeStale()
		return n
	}
	for _, c := range []struct {
		name         string
		seconds, cpu float64
		want         uint64
	}{
		{"the first is since the start", 100, 50, 5e8},
		{"soon after, still since the start", 105, 55, 523809523},
		{"over the last window", 110, 60, 1e9},
		{"a little later, over that window and more", 115, 60, 666666666},
		{"the next window begins", 120, 60, 0},
		{"a recreated cgroup starts over", 130, 13, 1e8},
	} {
		if got := at(c.seconds, c.cpu); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	r.removeStale() // no cgroup was read
	if len(r) != 0 {
		t.Error("a group that is gone is remembered")
	}
}

func expose(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestResourceMetrics(t *testing.T) {
	parity.Proves(t, "SRV-46")
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		text := expose(t, New(g.cfg).Resource())
		for _, want := range []string{
			"# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 0.5 1",
			`container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 0.2 1`,
			`container_memory_working_set_bytes{container="main",namespace="default",pod="web"} 5.24288e+07 1`,
			`container_start_time_seconds{container="main",namespace="default",pod="web"} 1.777629601e+09` + "\n",
			`container_swap_usage_bytes{container="main",namespace="default",pod="web"} 4096 1`,
			`pod_cpu_usage_seconds_total{namespace="default",pod="web"} 0.5 1`,
			`pod_memory_working_set_bytes{namespace="default",pod="web"} 9.437184e+07 1`,
			`pod_swap_usage_bytes{namespace="default",pod="web"} 4096 1`,
			"# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes ",
			"node_swap_usage_bytes 24576 1",
			"resource_scrape_error 0\n", "# HELP node_cpu_usage_seconds_total [STABLE] ",
			"# HELP node_memory_working_set_bytes [STABLE] ", "# HELP container_cpu_usage_seconds_total [STABLE] ",
			"# HELP container_memory_working_set_bytes [STABLE] ", "# HELP container_start_time_seconds [STABLE] ",
			"# HELP pod_cpu_usage_seconds_total [STABLE] ", "# HELP pod_memory_working_set_bytes [STABLE] ",
			"# HELP resource_scrape_error [STABLE] ", "# HELP node_swap_usage_bytes [ALPHA] ",
			"# HELP container_swap_usage_bytes [ALPHA] ", "# HELP pod_swap_usage_bytes [ALPHA] ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "\nscrape_error ") {
			t.Error("the hidden metric scrape_error is shown")
		}
		const limit = `# HELP container_swap_limit_bytes [ALPHA] `
		const shown = `container_swap_limit_bytes{container="main",namespace="default",pod="web"} 8192`
		if v2 && (!strings.Contains(text, limit) || !strings.Contains(text, shown)) {
			t.Errorf("no limit of swap in\n%s", text)
		}
	})
	g := newGround(t, true)
	g.cfg.Host = fstest.MapFS{}
	if text := expose(t, New(g.cfg).Resource()); !strings.Contains(text, "resource_scrape_error 1\n") {
		t.Errorf("a failure is not reported:\n%s", text)
	}
}

func TestContainerMetrics(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-47")
	parity.ProvesPart(t, 2, "SRV-48")
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		text := expose(t, New(g.cfg).Containers())
		main := `container="main",id="` + podDir + "/" + mainID + `",image="app:1",name="` + mainID +
			`",namespace="default",pod="web"`
		for _, want := range []string{
			`container_cpu_usage_seconds_total{container="main",cpu="total",id="` + podDir + "/" + mainID +
				`",image="app:1",name="` + mainID + `",namespace="default",pod="web"} 0.2 1`,
			`container_memory_working_set_bytes{container="",id="` + podDir + "/" + sandboxID +
				`",image="registry.k8s.io/pause:3.10.1",name="` + sandboxID +
				`",namespace="default",pod="web"} 9.437184e+07 1`,
			`container_memory_usage_bytes{container="",id="` + podDir +
				`",image="",name="",namespace="default",pod="web"} 1.048576e+08 1`,
			`container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 0.5 1`,
			`container_memory_rss{` + main +
				`} 3.145728e+07 1`, `container_memory_failcnt{` + main + `} 3 1`,
			`container_oom_events_total{` + main + `} 1 1`,
			`container_cpu_cfs_throttled_seconds_total{` + main +
				`} 1 1`, `container_threads{` + main + `} 4 1`, `container_spec_cpu_quota{` + main + `} 20000` + "\n",
			`container_spec_memory_limit_bytes{` + main + `} 6.7108864e+07` +
				"\n", `container_start_time_seconds{` + main + `} 1.777629602e+09` + "\n",
			`id="/kubepods/burstable"`, "machine_cpu_cores{", "machine_scrape_error 0\n", "container_scrape_error 0\n",
			`cadvisor_version_info{cadvisorRevision="",`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q", want)
			}
		}
		pressed := `container_pressure_memory_waiting_seconds_total{` + main + `} 2 1`
		read := `container_fs_reads_bytes_total{container="main",device="",id="` + podDir
		for _, s := range []string{pressed, read} {
			if strings.Contains(text, s) != v2 {
				t.Errorf("%q there: %v, want %v", s, !v2, v2)
			}
		}
		for _, absent := range []string{
			"accelerator", "container_network_tcp", "container_network_udp", "perf_event", "hugetlb", "container_sched",
			"resctrl", "cpuset",
		} {
			if strings.Contains(text, absent) {
				t.Errorf("%s is reported", absent)
			}
		}
		if t.Failed() {
			t.Log(text)
		}
	})
}

// If the gate is enabled, the usage of pods is queried from the runtime.
func TestUsageFromRuntime(t *testing.T) {
	parity.Proves(t, "SRV-43")
	parity.ProvesPart(t, 5, "SRV-37")
	parity.ProvesPart(t, 3, "SRV-39")
	g := newGround(t, true)
	if p := New(g.cfg).Provider(); p != "cadvisor" {
		t.Errorf("provider %s", p)
	}
	g.cfg.FromRuntime = true
	c := New(g.cfg)
	if p := c.Provider(); p != "cri" {
		t.Errorf("provider %s", p)
	}
	s, err := c.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Pods[0]
	if *p.CPU.UsageCoreNanoSeconds != 5e9 || *p.CPU.UsageNanoCores != 7 || *p.ProcessStats.ProcessCount != 3 ||
		p.Network.Name != "eth0" || *p.Network.RxBytes != 11 ||
		*p.Containers[0].Memory.WorkingSetBytes != 20*mebi || *p.Containers[0].Memory.AvailableBytes != 44*mebi ||
		*p.Containers[0].Swap.SwapUsageBytes != 1024 || *p.Containers[0].Swap.SwapAvailableBytes != 4096 {
		t.Errorf("%s", show(p))
	}
	text, err := json.Marshal(p.Network)
	const want = `"name":"eth0","rxBytes":11,"rxErrors":0,"txBytes":0,"txErrors":0,` +
		`"interfaces":[{"name":"eth0","rxBytes":11,"rxErrors":0,"txBytes":0,"txErrors":0}]}`
	if err != nil || !strings.HasSuffix(string(text), want) || !strings.HasPrefix(string(text), `{"time":`) {
		t.Errorf("network %s, %v", text, err)
	}
}

// With the gate, metrics of the runtime are exposed, and none of cgroups.
func TestRuntimeMetrics(t *testing.T) {
	g := newGround(t, true)
	g.cfg.FromRuntime = true
	c := New(g.cfg)
	logged := func() string { return expose(t, c.Containers()) }
	text := logged()
	for _, line := range []string{
		"# HELP container_threads Threads.", "# TYPE container_threads gauge",
		`container_threads{container="",pod="web"} 5`,
		`container_threads{container="main",pod="web"} 4`, "# TYPE container_oom_events_total counter",
		`container_oom_events_total{container="main"} 2 7000`, "container_scrape_error 0", "machine_cpu_cores{",
	} {
		if !strings.Contains(text, line+"\n") && !strings.HasSuffix(line, "{") || !strings.Contains(text, line) {
			t.Errorf("no %q", line)
		}
	}
	if strings.Contains(text, "container_memory_usage_bytes") {
		t.Error("cgroups are read as well")
	}
	for what, odd := range map[string]*runtimeapi.Metric{
		"without a description": {Name: "container_unknown", Value: value(1)},
		"with too few labels":   {Name: "container_threads", LabelValues: []string{"web"}, Value: value(77)},
		"with too many labels": {
			Name:        "container_threads",
			LabelValues: []string{"web", "main", "x"},
			Value:       value(77),
		},
	} {
		g.odd = []*runtimeapi.Metric{odd}
		text := logged()
		if strings.Contains(text, "container_unknown") || strings.Contains(text, " 77") ||
			!strings.Contains(text, `container_threads{container="main",pod="web"} 4`) ||
			!strings.Contains(text, "container_scrape_error 1") {
			t.Errorf("a metric %s:\n%s", what, text)
		}
	}
	g.odd, g.broken = nil, errors.New("not implemented")
	if text := logged(); !strings.Contains(text, "container_scrape_error 1") ||
		!strings.Contains(text, "machine_cpu_cores{") {
		t.Errorf("of a runtime that keeps none:\n%s", text)
	}
	if t.Failed() {
		t.Log(text)
	}
}

func show(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}
