package cgroup

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"keelson/test/kit/parity"
)

var plain = PodOptions{CFSQuota: true, CFSPeriod: 100 * time.Millisecond}

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func ctr(requests, limits v1.ResourceList) v1.Container {
	return v1.Container{Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func TestPodValues(t *testing.T) {
	parity.Proves(t, "RES-12")
	parity.ProvesPart(t, 2, "RES-09")
	parity.ProvesPart(t, 2, "RES-11")
	parity.ProvesPart(t, 5, "RES-13")
	parity.ProvesPart(t, 3, "LIFE-117")
	parity.ProvesPart(t, 3, "LIFE-122")
	sidecar := ctr(list("cpu", "50m"), list("cpu", "100m", "memory", "1Mi"))
	sidecar.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	both := list("cpu", "500m", "memory", "64Mi")
	for _, tc := range []struct {
		name string
		spec v1.PodSpec
		opts func(*PodOptions)
		want Values
	}{
		{"best effort gets the least", v1.PodSpec{Containers: []v1.Container{{}}}, nil, Values{CPUShares: 2}},
		{"guaranteed: all is limited", v1.PodSpec{Containers: []v1.Container{ctr(both, both)}}, nil,
			Values{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, Memory: 64 << 20}},
		{"burstable: a request is a share",
			v1.PodSpec{Containers: []v1.Container{ctr(list("cpu", "100m"), nil)}}, nil, Values{CPUShares: 102}},
		{"a limit on one container does not bind the others",
			v1.PodSpec{Containers: []v1.Container{ctr(list("cpu", "100m"), both), {}}}, nil, Values{CPUShares: 102}},
		{"limits on all bind the pod",
			v1.PodSpec{Containers: []v1.Container{ctr(list("cpu", "100m"), both), ctr(list("cpu", "100m"), both)}}, nil,
			Values{CPUShares: 204, CPUQuota: 100000, CPUPeriod: 100000, Memory: 128 << 20}},
		{"an init container with only requests leaves the pod unlimited",
			v1.PodSpec{
				InitContainers: []v1.Container{ctr(list("cpu", "50m"), nil)},
				Containers:     []v1.Container{ctr(list("cpu", "100m"), both)},
			}, nil, Values{CPUShares: 102}},
		{"a limit of zero leaves the pod unlimited",
			v1.PodSpec{
				Containers: []v1.Container{ctr(list("cpu", "100m"), both), ctr(nil, list("cpu", "0", "memory", "0"))},
			}, nil, Values{CPUShares: 102}},
		{"memory alone may be limited",
			v1.PodSpec{
				Containers: []v1.Container{ctr(list("cpu", "100m"), list("memory", "1Mi"))},
			}, nil, Values{CPUShares: 102, Memory: 1 << 20}},
		{
			"an init container without limits leaves the pod unlimited",
			v1.PodSpec{
				InitContainers: []v1.Container{{}},
				Containers:     []v1.Container{ctr(list("cpu", "100m"), both)},
			},
			nil,
			Values{CPUShares: 102},
		},
		{
			"a sidecar without limits leaves the pod unlimited",
			v1.PodSpec{
				InitContainers: []v1.Container{{RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}},
				Containers:     []v1.Container{ctr(list("cpu", "100m"), both)},
			},
			nil,
			Values{CPUShares: 102},
		},
		{"init containers count by the largest, sidecars add up",
			v1.PodSpec{
				InitContainers: []v1.Container{sidecar, ctr(list("cpu", "300m"), list("cpu", "300m", "memory", "8Mi"))},
				Containers:     []v1.Container{ctr(list("cpu", "100m"), list("cpu", "200m", "memory", "2Mi"))},
			}, nil,
			Values{CPUShares: 358, CPUQuota: 40000, CPUPeriod: 100000, Memory: 9 << 20}},
		{"ephemeral containers have no resources and bind nothing",
			v1.PodSpec{
				Containers:          []v1.Container{ctr(both, both)},
				EphemeralContainers: []v1.EphemeralContainer{{}},
			}, nil,
			Values{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, Memory: 64 << 20}},
		{"ephemeral containers do not limit a burstable pod",
			v1.PodSpec{
				Containers:          []v1.Container{ctr(list("cpu", "100m"), both)},
				EphemeralContainers: []v1.EphemeralContainer{{}},
			}, nil,
			Values{CPUShares: 102, CPUQuota: 50000, CPUPeriod: 100000, Memory: 64 << 20}},
		{"overhead is added",
			v1.PodSpec{
				Containers: []v1.Container{ctr(both, both)},
				Overhead:   list("cpu", "100m", "memory", "1Mi"),
			}, nil,
			Values{CPUShares: 614, CPUQuota: 60000, CPUPeriod: 100000, Memory: 65 << 20}},
		{"the pod's own limits bind it",
			v1.PodSpec{
				Resources: &v1.ResourceRequirements{
					Requests: list("cpu", "1"),
					Limits:   list("cpu", "2", "memory", "1Gi"),
				},
				Containers: []v1.Container{{}},
			}, nil,
			Values{CPUShares: 1024, CPUQuota: 200000, CPUPeriod: 100000, Memory: 1 << 30}},
		{"a tiny limit is still a millisecond",
			v1.PodSpec{
				Containers: []v1.Container{ctr(list("cpu", "1m", "memory", "1Mi"), list("cpu", "1m", "memory", "1Mi"))},
			}, nil,
			Values{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 100000, Memory: 1 << 20}},
		{"no quota where quotas are off", v1.PodSpec{Containers: []v1.Container{ctr(both, both)}},
			func(o *PodOptions) { o.CFSQuota = false },
			Values{CPUShares: 512, CPUQuota: -1, CPUPeriod: 100000, Memory: 64 << 20}},
		{"no quota on CPUs of its own", v1.PodSpec{Containers: []v1.Container{ctr(both, both)}},
			func(o *PodOptions) { o.ExclusiveCPUs = func(*v1.Pod) bool { return true } },
			Values{CPUShares: 512, CPUQuota: -1, CPUPeriod: 100000, Memory: 64 << 20}},
		{"another period", v1.PodSpec{Containers: []v1.Container{ctr(both, both)}},
			func(o *PodOptions) { o.CFSPeriod = 10 * time.Millisecond },
			Values{CPUShares: 512, CPUQuota: 5000, CPUPeriod: 10000, Memory: 64 << 20}},
		{"a limit on processes", v1.PodSpec{Containers: []v1.Container{{}}}, func(o *PodOptions) { o.PIDs = 100 }, Values{
			CPUShares: 2,
			PIDs:      100,
		}},
		{"no limit on processes", v1.PodSpec{Containers: []v1.Container{{}}},
			func(o *PodOptions) { o.PIDs = -1 }, Values{CPUShares: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := plain
			if tc.opts != nil {
				tc.opts(&o)
			}
			if got := PodValues(&v1.Pod{Spec: tc.spec}, o); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("PodValues = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestHugePagesWithoutRequest(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-122")
	parity.ProvesPart(t, 4, "RES-14")
	o := plain
	o.PageSizes = []uint64{2 << 20, 1 << 30}
	req := list("cpu", "1", "memory", "1Mi", "hugepages-2Mi", "6Mi")
	v := PodValues(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{ctr(req, req)}}}, o)
	if fmt.Sprint(v.HugePages) != "map[2097152:6291456 1073741824:0]" {
		t.Errorf("huge pages = %v", v.HugePages)
	}
	// The requests of the containers are added. The largest request of an init container and the overhead count, too.
	both := &v1.Pod{Spec: v1.PodSpec{
		Overhead:       list("hugepages-2Mi", "2Mi"),
		InitContainers: []v1.Container{ctr(list("hugepages-1Gi", "1Gi"), list("hugepages-1Gi", "1Gi"))},
		Containers:     []v1.Container{ctr(req, req), ctr(list("hugepages-2Mi", "2Mi"), list("hugepages-2Mi", "2Mi"))},
	}}
	if got := fmt.Sprint(PodValues(both, o).HugePages); got != "map[2097152:10485760 1073741824:1073741824]" {
		t.Errorf("huge pages of several containers = %s", got)
	}
	own := list("hugepages-2Mi", "4Mi", "cpu", "1", "memory", "1Mi")
	whole := &v1.Pod{Spec: v1.PodSpec{
		Resources:  &v1.ResourceRequirements{Requests: own, Limits: own},
		Containers: []v1.Container{ctr(list("hugepages-2Mi", "2Mi"), list("hugepages-2Mi", "2Mi"))},
	}}
	if got := fmt.Sprint(PodValues(whole, o).HugePages); got != "map[2097152:4194304 1073741824:0]" {
		t.Errorf("huge pages of a pod with its own = %s", got)
	}
	least := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
	if got := fmt.Sprint(PodValues(least, o).HugePages); got != "map[2097152:0 1073741824:0]" {
		t.Errorf("huge pages of a best-effort pod = %s", got)
	}
	if got := fmt.Sprint(Values{HugePages: v.HugePages}.settingsV2()); got !=
		"[{hugetlb hugetlb.2MB.max 6291456 false} {hugetlb hugetlb.2MB.rsvd.max 6291456 true} {hugetlb hugetlb.1GB.max 0 "+
			"false} {hugetlb hugetlb.1GB.rsvd.max 0 true}]" {
		t.Errorf("v2 settings = %v", got)
	}
	if got := fmt.Sprint(Values{HugePages: map[uint64]int64{
		64 << 10: 1,
	}}.settingsV1()[0]); got != "{hugetlb hugetlb.64KB.limit_in_bytes 1 false}" {
		t.Errorf("v1 setting = %v", got)
	}
}

func TestQoSClassHugePages(t *testing.T) {
	parity.ProvesPart(t, 4, "RES-14")
	v := classValues([]uint64{2 << 20})
	if got := fmt.Sprint(v.settingsV2()); got != "[{cpu cpu.weight 1 false} {hugetlb hugetlb.2MB.max max false} "+
		"{hugetlb hugetlb.2MB.rsvd.max max true}]" {
		t.Errorf("v2 settings = %s", got)
	}
	if got := fmt.Sprint(v.settingsV1()); got != "[{cpu cpu.shares 2 false} {hugetlb hugetlb.2MB.limit_in_bytes "+
		"9223372036854775807 false} {hugetlb hugetlb.2MB.rsvd.limit_in_bytes 9223372036854775807 true}]" {
		t.Errorf("v1 settings = %s", got)
	}
}

func TestWeight(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-07")
	for s, want := range map[uint64]uint64{
		0:       1,
		2:       1,
		102:     4,
		512:     20,
		1024:    39,
		2048:    79,
		262144:  10000,
		1 << 40: 10000,
	} {
		if got := weight(s); got != want {
			t.Errorf("weight(%d) = %d, want %d", s, got, want)
		}
	}
	for milli, want := range map[int64]uint64{0: 2, 1: 2, 100: 102, 500: 512, 2000: 2048, 1 << 40: 262144} {
		if got := shares(milli); got != want {
			t.Errorf("shares(%d) = %d, want %d", milli, got, want)
		}
	}
}

func TestSettingsV2(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-07")
	parity.ProvesPart(t, 5, "RES-13")
	got := fmt.Sprint(Values{
		CPUShares: 512,
		CPUQuota:  50000,
		CPUPeriod: 100000,
		Memory:    64 << 20,
		PIDs:      7,
	}.settingsV2())
	if want := "[{cpu cpu.weight 20 false} {cpu cpu.max 50000 100000 false} {memory memory.max 67108864 false} {pids " +
		"pids.max 7 false}]"; got != want {
		t.Errorf("settings = %s, want %s", got, want)
	}
	if got := fmt.Sprint(Values{CPUQuota: -1}.settingsV2()); got != "[{cpu cpu.max max 100000 false}]" {
		t.Errorf("no quota = %s", got)
	}
	if got := fmt.Sprint(Values{HugePages: map[uint64]int64{
		1 << 30: 9223372036854775807,
	}}.settingsV2()[0]); got != "{hugetlb hugetlb.1GB.max max false}" {
		t.Errorf("unlimited = %s", got)
	}
}

func TestSettingsV1(t *testing.T) {
	parity.ProvesPart(t, 5, "RES-13")
	got := fmt.Sprint(Values{
		CPUShares: 512,
		CPUQuota:  50000,
		CPUPeriod: 100000,
		Memory:    64 << 20,
		PIDs:      7,
	}.settingsV1())
	want := "[{cpu cpu.shares 512 false} {cpu cpu.cfs_period_us 100000 false} {cpu cpu.cfs_quota_us 50000 false} " +
		"{memory memory.limit_in_bytes 67108864 false} {pids pids.max 7 false}]"
	if got != want {
		t.Errorf("settings = %s, want %s", got, want)
	}
}

func TestNodeValues(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-16")
	parity.ProvesPart(t, 5, "RES-13")
	got := NodeValues(list("cpu", "2", "memory", "24684096Ki", "hugepages-2Mi", "4Mi", "pods", "110"),
		list("cpu", "500m", "memory", "1Gi", "pid", "1000"), 32768)
	want := Values{
		CPUShares: 1536,
		Memory:    24684096<<10 - 1<<30,
		PIDs:      31768,
		HugePages: map[uint64]int64{2 << 20: 4 << 20},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("NodeValues = %+v, want %+v", got, want)
	}
	if got := NodeValues(list("cpu", "1", "memory", "1Gi"), list("cpu", "2", "memory", "2Gi"), 0); got.CPUShares != 2 ||
		got.Memory != 0 || got.PIDs != 0 {
		t.Errorf("over-reserved = %+v", got)
	}
}

func TestBurstableCPU(t *testing.T) {
	p := func(req, lim v1.ResourceList) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{ctr(req, lim)}}}
	}
	got := BurstableCPU([]*v1.Pod{
		p(list("cpu", "100m"), nil), p(list("cpu", "50m"), nil), p(nil, nil),
		p(list("cpu", "1", "memory", "1"), list("cpu", "1", "memory", "1")),
	})
	if got != 150 {
		t.Errorf("BurstableCPU = %d, want 150: only burstable pods count", got)
	}
}

// recorded reads the pods that were run with the upstream kubelet, by QoS class, and the values
// that it wrote, by controller, cgroup and file.
func recorded(t *testing.T) (map[v1.PodQOSClass]*v1.Pod, map[[3]string]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := map[v1.PodQOSClass]*v1.Pod{}
	for doc := range strings.SplitSeq(string(text), "---\n") {
		p := new(v1.Pod)
		if err := yaml.Unmarshal([]byte(doc), p); err != nil {
			t.Fatal(err)
		}
		for i := range p.Spec.Containers { // the API server fills these in
			r := &p.Spec.Containers[i].Resources
			if r.Requests == nil {
				r.Requests = r.Limits
			}
		}
		class := map[string]v1.PodQOSClass{
			"ref-guaranteed": v1.PodQOSGuaranteed,
			"ref-burstable":  v1.PodQOSBurstable,
			"ref-besteffort": v1.PodQOSBestEffort,
		}[p.Name]
		p.UID = types.UID("uid-" + strings.TrimPrefix(p.Name, "ref-"))
		pods[class] = p
	}
	text, err = os.ReadFile("testdata/upstream-v1.tsv")
	if err != nil {
		t.Fatal(err)
	}
	values := map[[3]string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) == 4 && !strings.Contains(f[1], "<id>") { // containers are the runtime's
			values[[3]string{f[0], f[1], f[2]}] = f[3]
		}
	}
	return pods, values
}
