package container

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// list builds a resource list from "cpu", "500m", "memory", "1Gi" and so on.
func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

const gi = int64(1) << 30

func TestContainerResources(t *testing.T) {
	parity.Proves(t, "RES-10", "LIFE-132")
	parity.ProvesPart(t, 2, "RES-11")
	parity.ProvesPart(t, 2, "CFG-54")
	parity.ProvesPart(t, 3, "CFG-65")
	parity.ProvesPart(t, 4, "RES-14")
	parity.ProvesPart(t, 3, "LIFE-122")
	on := cpuRules{quota: true, period: 100000}
	v1Kernel, v2Kernel := Kernel{SwapController: true}, Kernel{CgroupV2: true, SwapController: true}
	type res = runtimeapi.LinuxContainerResources
	for _, tc := range []struct {
		name   string
		reqs   v1.ResourceRequirements
		pod    *v1.ResourceRequirements
		cpu    cpuRules
		kernel Kernel
		oneOOM bool
		assign assignment
		want   *res
	}{
		{name: "no resources or settings", cpu: on, want: &res{CpuPeriod: 100000, CpuShares: 2, OomScoreAdj: 1000}},
		{
			name: "a request is a weight",
			cpu:  on,
			reqs: v1.ResourceRequirements{Requests: list("cpu", "250m")},
			want: &res{CpuPeriod: 100000, CpuShares: 256, OomScoreAdj: 999},
		},
		{
			name: "without a request the limit is one",
			cpu:  on,
			reqs: v1.ResourceRequirements{Limits: list("cpu", "1")},
			want: &res{CpuPeriod: 100000, CpuQuota: 100000, CpuShares: 1024, OomScoreAdj: 999},
		},
		{
			name: "a request of zero is one too",
			cpu:  on,
			reqs: v1.ResourceRequirements{Requests: list("cpu", "0"), Limits: list("cpu", "1")},
			want: &res{CpuPeriod: 100000, CpuQuota: 100000, CpuShares: 2, OomScoreAdj: 999},
		},
		{
			name: "the minimum quota",
			cpu:  on,
			reqs: v1.ResourceRequirements{Limits: list("cpu", "1m")},
			want: &res{CpuPeriod: 100000, CpuQuota: 1000, CpuShares: 2, OomScoreAdj: 999},
		},
		{
			name: "a configured period",
			cpu:  cpuRules{quota: true, period: 20000},
			reqs: v1.ResourceRequirements{Limits: list("cpu", "500m")},
			want: &res{CpuPeriod: 20000, CpuQuota: 10000, CpuShares: 512, OomScoreAdj: 999},
		},
		{
			name: "quotas turned off",
			reqs: v1.ResourceRequirements{Limits: list("cpu", "1")},
			want: &res{CpuShares: 1024, OomScoreAdj: 999},
		},
		{
			name: "the maximum shares",
			cpu:  on,
			reqs: v1.ResourceRequirements{Requests: list("cpu", "1000")},
			want: &res{CpuPeriod: 100000, CpuShares: 262144, OomScoreAdj: 999},
		},
		{
			name:   "exclusive CPUs without a quota",
			cpu:    on,
			reqs:   v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "1Gi")},
			assign: assignment{cpus: "2-3", mems: "0", exclusive: true},
			want: &res{
				CpuPeriod:          100000,
				CpuQuota:           -1,
				CpuShares:          2048,
				MemoryLimitInBytes: gi,
				CpusetCpus:         "2-3",
				CpusetMems:         "0",
				OomScoreAdj:        -997,
			},
		},
		{
			name: "the pod-level limit is the default",
			cpu:  on,
			pod: &v1.ResourceRequirements{
				Limits:   list("cpu", "2", "memory", "2Gi"),
				Requests: list("cpu", "1", "memory", "1Gi"),
			},
			reqs: v1.ResourceRequirements{Requests: list("cpu", "500m")},
			want: &res{
				CpuPeriod:          100000,
				CpuQuota:           200000,
				CpuShares:          512,
				MemoryLimitInBytes: 2 * gi,
				OomScoreAdj:        900,
			},
		},
		{
			name: "the container's limit overrides the pod's",
			cpu:  on,
			pod:  &v1.ResourceRequirements{Limits: list("memory", "2Gi")},
			reqs: v1.ResourceRequirements{Limits: list("memory", "1Gi")},
			want: &res{CpuPeriod: 100000, CpuShares: 2, MemoryLimitInBytes: gi, OomScoreAdj: 999},
		},
		{
			name:   "every huge page size is named",
			cpu:    on,
			kernel: Kernel{HugePageSizes: []string{"64KB", "2MB", "1GB"}},
			reqs:   v1.ResourceRequirements{Limits: list("cpu", "1", "hugepages-2Mi", "4Mi", "hugepages-512Mi", "1Gi")},
			want: &res{
				CpuPeriod:   100000,
				CpuQuota:    100000,
				CpuShares:   1024,
				OomScoreAdj: 999,
				HugepageLimits: []*runtimeapi.HugepageLimit{
					{PageSize: "64KB"},
					{PageSize: "2MB", Limit: 4 << 20},
					{PageSize: "1GB"},
				},
			},
		},
		{
			name:   "huge pages of the pod",
			cpu:    on,
			kernel: Kernel{HugePageSizes: []string{"2MB", "1GB"}},
			pod:    &v1.ResourceRequirements{Limits: list("hugepages-2Mi", "8Mi", "hugepages-1Gi", "1Gi")},
			reqs:   v1.ResourceRequirements{Limits: list("hugepages-2Mi", "4Mi")},
			want: &res{
				CpuPeriod:      100000,
				CpuShares:      2,
				OomScoreAdj:    1000,
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB", Limit: 1 << 30}},
			},
		},
		{
			name:   "v1: memory and swap together are no more than memory",
			cpu:    on,
			kernel: v1Kernel,
			reqs:   v1.ResourceRequirements{Limits: list("memory", "1Gi")},
			want: &res{
				CpuPeriod:              100000,
				CpuShares:              2,
				MemoryLimitInBytes:     gi,
				MemorySwapLimitInBytes: gi,
				OomScoreAdj:            999,
			},
		},
		{
			name:   "v2: swap has a file, and a container dies whole",
			cpu:    on,
			kernel: v2Kernel,
			reqs:   v1.ResourceRequirements{Limits: list("memory", "1Gi")},
			want: &res{
				CpuPeriod:          100000,
				CpuShares:          2,
				MemoryLimitInBytes: gi,
				OomScoreAdj:        999,
				Unified:            map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"},
			},
		},
		{
			name:   "v2: or one process at a time",
			cpu:    on,
			kernel: Kernel{CgroupV2: true},
			oneOOM: true,
			want:   &res{CpuPeriod: 100000, CpuShares: 2, OomScoreAdj: 1000},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{Resources: tc.pod, Containers: []v1.Container{{Resources: tc.reqs}}}}
			got := containerResources(p, &p.Spec.Containers[0], pod.Regular, tc.cpu, tc.kernel,
				NodeFacts{Memory: 10 * gi},
				NoSwap, tc.oneOOM, tc.assign)
			if !proto.Equal(got, tc.want) {
				t.Errorf("got  %s\nwant %s", prototext.Format(got), prototext.Format(tc.want))
			}
		})
	}
}

func TestLimitedSwap(t *testing.T) {
	parity.Proves(t, "LIFE-131")
	parity.ProvesPart(t, 3, "CFG-80")
	node := NodeFacts{Memory: 10 * gi, Swap: 5 * gi}
	for _, tc := range []struct {
		name     string
		behavior string
		reqs     v1.ResourceRequirements
		critical bool
		want     string
	}{
		{
			"in proportion to the request",
			LimitedSwap,
			v1.ResourceRequirements{Requests: list("memory", "1Gi")},
			false,
			fmt.Sprint(gi / 2),
		},
		{"only when it is limited", NoSwap, v1.ResourceRequirements{Requests: list("memory", "1Gi")}, false, "0"},
		{"not without a request", LimitedSwap, v1.ResourceRequirements{Requests: list("cpu", "1")}, false, "0"},
		{
			"not where the request is the limit",
			LimitedSwap,
			v1.ResourceRequirements{Requests: list("memory", "1Gi"), Limits: list("memory", "1Gi")},
			false,
			"0",
		},
		{"not for best effort", LimitedSwap, v1.ResourceRequirements{}, false, "0"},
		{
			"not for guaranteed",
			LimitedSwap,
			v1.ResourceRequirements{
				Limits:   list("cpu", "1", "memory", "1Gi"),
				Requests: list("cpu", "1", "memory", "1Gi"),
			},
			false,
			"0",
		},
		{"not for critical pods", LimitedSwap, v1.ResourceRequirements{Requests: list("memory", "1Gi")}, true, "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: tc.reqs}}}}
			if tc.critical {
				p.Spec.Priority = ptr.To[int32](2_000_000_000)
			}
			got := containerResources(p, &p.Spec.Containers[0], pod.Regular, cpuRules{},
				Kernel{CgroupV2: true, SwapController: true}, node, tc.behavior, false, assignment{})
			if got.Unified["memory.swap.max"] != tc.want {
				t.Errorf("memory.swap.max %q, want %q", got.Unified["memory.swap.max"], tc.want)
			}
		})
	}
}

func TestOOMScore(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-118")
	c := func(name string, kv ...string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(kv...)}}
	}
	sidecar := func(c v1.Container) v1.Container {
		c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		return c
	}
	whole := &v1.ResourceRequirements{Requests: list("memory", "4Gi")}
	for _, tc := range []struct {
		name   string
		spec   v1.PodSpec
		target string
		want   int64
	}{
		{"best effort", v1.PodSpec{Containers: []v1.Container{c("a")}}, "a", 1000},
		{
			"guaranteed",
			v1.PodSpec{
				Containers: []v1.Container{
					{Name: "a", Resources: v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi")}},
				},
			},
			"a",
			-997,
		},
		{"critical to the node", v1.PodSpec{
			PriorityClassName: "system-node-critical",
			Priority:          ptr.To[int32](2_000_001_000),
			Containers:        []v1.Container{c("a", "memory", "1Gi")},
		}, "a", -997},
		{"critical to the cluster", v1.PodSpec{
			PriorityClassName: "system-cluster-critical",
			Priority:          ptr.To[int32](2_000_000_000),
			Containers:        []v1.Container{c("a", "memory", "1Gi")},
		}, "a", 900},
		{"of the priority that is critical to the node, without the class", v1.PodSpec{
			Priority:   ptr.To[int32](2_000_001_000),
			Containers: []v1.Container{c("a")},
		}, "a", 1000},
		{"of the class, without the priority", v1.PodSpec{
			PriorityClassName: "system-node-critical",
			Containers:        []v1.Container{c("a")},
		}, "a", 1000},
		{"a tenth of the memory", v1.PodSpec{Containers: []v1.Container{c("a", "memory", "1Gi")}}, "a", 900},
		{"none of the memory", v1.PodSpec{Containers: []v1.Container{c("a", "cpu", "1")}}, "a", 999},
		{"all of the memory", v1.PodSpec{Containers: []v1.Container{c("a", "memory", "10Gi")}}, "a", 3},
		{"a sidecar scores no higher than the regular container that requests least", v1.PodSpec{
			InitContainers: []v1.Container{sidecar(c("s"))},
			Containers:     []v1.Container{c("a", "memory", "1Gi"), c("b", "memory", "2Gi")},
		}, "s", 900},
		{
			"but may be better",
			v1.PodSpec{
				InitContainers: []v1.Container{sidecar(c("s", "memory", "5Gi"))},
				Containers:     []v1.Container{c("a", "memory", "1Gi")},
			},
			"s",
			500,
		},
		{
			"an init container is on its own",
			v1.PodSpec{InitContainers: []v1.Container{c("i")}, Containers: []v1.Container{c("a", "memory", "1Gi")}},
			"i",
			999,
		},
		{
			"the pod-level request beyond the containers' is shared",
			v1.PodSpec{Resources: whole, Containers: []v1.Container{c("a", "memory", "1Gi"), c("b", "memory", "1Gi")}},
			"a",
			800,
		},
		{"also with init containers", v1.PodSpec{
			Resources:      whole,
			InitContainers: []v1.Container{c("i", "memory", "1Gi")},
			Containers:     []v1.Container{c("a", "memory", "1Gi"), c("b", "memory", "1Gi")},
		}, "a", 834},
		{"and the init container has its part", v1.PodSpec{
			Resources:      whole,
			InitContainers: []v1.Container{c("i")},
			Containers:     []v1.Container{c("a", "memory", "1Gi")},
		}, "i", 850},
		{
			"also with sidecars",
			v1.PodSpec{
				Resources:      whole,
				InitContainers: []v1.Container{sidecar(c("s"))},
				Containers:     []v1.Container{c("a")},
			},
			"a",
			800,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: tc.spec}
			kind, c, ok := pod.Find(p, tc.target)
			if !ok {
				t.Fatal("no such container")
			}
			if got := oomScore(p, c, kind, 10*gi); got != tc.want {
				t.Errorf("score %d, want %d", got, tc.want)
			}
		})
	}
}

// A static pod is critical whatever its priority, so that only the QoS class matters.
func TestOOMScoreOfStaticPod(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-118")
	for class, want := range map[string]int64{"system-node-critical": -997, "system-cluster-critical": 1000, "": 1000} {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}},
			Spec:       v1.PodSpec{PriorityClassName: class, Containers: []v1.Container{{Name: "a"}}},
		}
		if got := oomScore(p, &p.Spec.Containers[0], pod.Regular, 10*gi); got != want {
			t.Errorf("of class %q: score %d, want %d", class, got, want)
		}
	}
}

func TestSandboxResources(t *testing.T) {
	parity.Proves(t, "RT-17")
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1.PodSpec{
			Overhead: list("cpu", "100m", "memory", "1Gi"),
			Containers: []v1.Container{
				{
					Name: "a",
					Resources: v1.ResourceRequirements{
						Requests: list("cpu", "1"),
						Limits:   list("cpu", "2", "memory", "1Gi"),
					},
				},
				{
					Name: "b",
					Resources: v1.ResourceRequirements{
						Requests: list("cpu", "500m"),
						Limits:   list("cpu", "1", "memory", "2Gi"),
					},
				},
			},
		},
	}
	type res = runtimeapi.LinuxContainerResources
	group := map[string]string{"memory.oom.group": "1"}
	for _, tc := range []struct {
		name           string
		with           func(*Config)
		want, overhead *res
	}{
		{
			name:     "limits of the pod and of its overhead",
			with:     func(*Config) {},
			want:     &res{CpuPeriod: 100000, CpuQuota: 300000, CpuShares: 1536, MemoryLimitInBytes: 3 * gi},
			overhead: &res{CpuPeriod: 100000, CpuQuota: 10000, CpuShares: 102, MemoryLimitInBytes: gi},
		},
		{
			name: "no quota for a pod with exclusive CPUs",
			with: func(c *Config) {
				c.ExclusiveCPUs = func(_ *v1.Pod, c *v1.Container) bool { return c.Name == "b" }
			},
			want:     &res{CpuPeriod: 100000, CpuQuota: -1, CpuShares: 1536, MemoryLimitInBytes: 3 * gi},
			overhead: &res{CpuPeriod: 100000, CpuQuota: 10000, CpuShares: 102, MemoryLimitInBytes: gi},
		},
		{
			name: "on cgroup v2 all processes are killed together",
			with: func(c *Config) { c.Kernel.CgroupV2 = true },
			want: &res{
				CpuPeriod:          100000,
				CpuQuota:           300000,
				CpuShares:          1536,
				MemoryLimitInBytes: 3 * gi,
				Unified:            group,
			},
			overhead: &res{
				CpuPeriod:          100000,
				CpuQuota:           10000,
				CpuShares:          102,
				MemoryLimitInBytes: gi,
				Unified:            group,
			},
		},
		{
			name:     "or one at a time",
			with:     func(c *Config) { c.Kernel.CgroupV2, c.SingleProcessOOM = true, true },
			want:     &res{CpuPeriod: 100000, CpuQuota: 300000, CpuShares: 1536, MemoryLimitInBytes: 3 * gi},
			overhead: &res{CpuPeriod: 100000, CpuQuota: 10000, CpuShares: 102, MemoryLimitInBytes: gi},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, tc.with)
			b.run(t, p)
			got := b.runtime.Pods()[0].Config.Linux
			if !proto.Equal(got.Resources, tc.want) {
				t.Errorf("resources %v, want %v", got.Resources, tc.want)
			}
			if !proto.Equal(got.Overhead, tc.overhead) {
				t.Errorf("overhead %v, want %v", got.Overhead, tc.overhead)
			}
		})
	}
}
