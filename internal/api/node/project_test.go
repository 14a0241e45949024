package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/machine"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/parity"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func healthy(at time.Time) Health {
	return Health{
		LastResponse: at,
		LastReady:    at,
		Status: cri.Status{
			Runtime:                  cri.Condition{OK: true},
			Network:                  cri.Condition{OK: true},
			SupplementalGroupsPolicy: true,
			Handlers: []cri.Handler{
				{Name: "runc", RecursiveReadOnlyMounts: true, UserNamespaces: true},
				{Name: "", RecursiveReadOnlyMounts: true, UserNamespaces: true},
			},
		},
	}
}

// upstreamMachine is the machine on which upstream's node object was recorded.
func upstreamMachine() machine.Info {
	return machine.Info{
		CPUs:       2,
		Memory:     24684096 << 10,
		HugePages:  map[uint64]uint64{2 << 20: 0, 1 << 30: 0},
		MachineID:  "<id>",
		SystemUUID: "<id>",
		BootID:     "<id>",
		Kernel:     "6.18.44-fc-v595",
		OSImage:    "Debian GNU/Linux 12 (bookworm)",
		OS:         "linux",
		Arch:       "amd64",
	}
}

// TestProjectMatchesUpstream compares a whole status with the recorded one.
func TestProjectMatchesUpstream(t *testing.T) {
	parity.Proves(t, "NODE-16")
	parity.ProvesPart(t, 2, "NODE-18")
	parity.ProvesPart(t, 2, "NODE-32")
	parity.ProvesPart(t, 2, "NODE-34")
	parity.ProvesPart(t, 2, "NODE-35")
	parity.ProvesPart(t, 2, "NODE-27")
	parity.ProvesPart(t, 4, "NODE-28")
	parity.ProvesPart(t, 4, "NODE-31")
	text, err := os.ReadFile("testdata/upstream-node.json")
	if err != nil {
		t.Fatal(err)
	}
	var want v1.Node
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "<node ip>", "192.0.2.2")), &want); err != nil {
		t.Fatal(err)
	}
	now := want.Status.Conditions[0].LastHeartbeatTime.Time
	began := want.Status.Conditions[0].LastTransitionTime

	m := upstreamMachine()
	capacity := Capacity(CapacityInput{
		Machine: m,
		Storage: &machine.Filesystem{Capacity: 264212084 << 10},
		MaxPods: 250,
	})
	onePercent := float64(264212084<<10) * float64(float32(1)/100)
	kept := v1.ResourceList{
		v1.ResourceMemory:           resource.MustParse("100Mi"),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(onePercent), resource.BinarySI),
	}
	var prev v1.NodeStatus
	for _, k := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		prev.Conditions = append(prev.Conditions, v1.NodeCondition{
			Type:               k,
			Status:             v1.ConditionFalse,
			LastTransitionTime: began,
		})
	}
	prev.Conditions = append(prev.Conditions, v1.NodeCondition{
		Type:               v1.NodeReady,
		Status:             v1.ConditionTrue,
		LastTransitionTime: began,
	})
	got, events := Project(Input{
		Now:            now,
		Prev:           prev,
		Hostname:       "node1",
		Addresses:      []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Machine:        m,
		Capacity:       capacity,
		Allocatable:    Allocatable(capacity, nil, kept),
		Storage:        true,
		RuntimeName:    "containerd",
		RuntimeVersion: "v2.4.2",
		Health:         healthy(now),
		Images: []*runtimeapi.Image{
			{Size: 134329173},
			{
				Size: 191222613,
				RepoTags: []string{
					"registry.k8s.io/e2e-test-images/agnhost:2.55",
					"registry.k8s.io/e2e-test-images/agnhost:2.63.0",
				},
			},
		},
		MaxImages:        50,
		Version:          "v1.36.3",
		Port:             10250,
		DeclaredFeatures: want.Status.DeclaredFeatures,
	})
	if a, b := asJSON(t, got), asJSON(t, want.Status); a != b {
		t.Errorf("status =\n%s\nwant\n%s", a, b)
	}
	if len(events) != 0 {
		t.Errorf("events %v although nothing turned", events)
	}
	fresh, _ := Project(Input{Now: now, Machine: m, Capacity: capacity, Health: healthy(now)})
	var kinds []string
	for _, c := range fresh.Conditions {
		kinds = append(kinds, string(c.Type))
	}
	if got := fmt.Sprint(kinds); got != "[MemoryPressure DiskPressure PIDPressure Ready]" {
		t.Errorf("conditions of a node that had none: %s", got)
	}
	if n := (Identity{
		Name:     "node1",
		Hostname: "node1",
		OS:       "linux",
		Arch:     "amd64",
	}).object(); fmt.Sprint(n.Labels) != fmt.Sprint(want.Labels) ||
		n.Annotations[annotationAttachDetach] != "true" || len(n.Annotations) != 1 { // a controller sets the TTL
		t.Errorf("metadata = %v, %v", n.Labels, n.Annotations)
	}
}

// The machine of the recorded node of upstream has neither huge pages nor swap.
func TestHugePagesAndSwap(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-27")
	parity.ProvesPart(t, 4, "NODE-31")
	m := upstreamMachine()
	m.CPUs, m.HugePages, m.Swap = 4, map[uint64]uint64{64 << 10: 1, 2 << 20: 3, 1 << 30: 2}, 1<<30
	root := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(root, &fs); err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{Size: Size{
		Machine: m,
		Storage: true,
		RootDir: root,
		MaxPods: 110,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[v1.ResourceName]string{
		"cpu":               "4000m",
		"memory":            "24684096Ki",
		"pods":              "110",
		"hugepages-64Ki":    "65536",
		"hugepages-2Mi":     "6291456",
		"hugepages-1Gi":     "2147483648",
		"ephemeral-storage": fmt.Sprint(int64(fs.Blocks) * fs.Frsize),
	} {
		if have := n.capacity[name]; have.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s = %s, want %s", name, have.String(), want)
		}
	}
	if len(n.capacity) != 7 {
		t.Errorf("capacity = %v", n.capacity)
	}
	st, _ := Project(Input{Machine: m, Capacity: n.capacity})
	if s := st.NodeInfo.Swap; s == nil || s.Capacity == nil || *s.Capacity != 1073741824 {
		t.Errorf("swap = %+v, want 1073741824 bytes", s)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAllocatable(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-28")
	got := Allocatable(list(
		"cpu",
		"4",
		"memory",
		"8Gi",
		"hugepages-2Mi",
		"1Gi",
		"ephemeral-storage",
		"100Gi",
		"pods",
		"110",
	),
		list("cpu", "500m", "memory", "1Gi", "ephemeral-storage", "10Gi", "pid", "1000"),
		list("memory", "858993459", "ephemeral-storage", "15Gi"))
	want := list(
		"cpu",
		"3500m",
		"memory",
		"5583457485",
		"hugepages-2Mi",
		"1Gi",
		"ephemeral-storage",
		"75Gi",
		"pods",
		"110",
	)
	for name, q := range want {
		if have := got[name]; have.Cmp(q) != 0 && !near(have.Value(), q.Value()) {
			t.Errorf("%s = %s, want %s", name, have.String(), q.String())
		}
	}
	if len(got) != len(want) {
		t.Errorf("allocatable = %v", got)
	}
	less := Allocatable(list("cpu", "1", "memory", "1Gi", "hugepages-1Gi", "2Gi"), list("cpu", "2"), nil)
	if !less.Cpu().IsZero() || !less.Memory().IsZero() {
		t.Errorf("over-reserved = %v, want zeros", less)
	}
}

// near allows for the last digits of a 32 bit percentage.
func near(a, b int64) bool { return max(a, b)-min(a, b) < 1000 }

func TestPodsPerCore(t *testing.T) {
	c := Capacity(CapacityInput{Machine: upstreamMachine(), MaxPods: 110, PodsPerCore: 10})
	if c.Pods().Value() != 20 {
		t.Errorf("pods = %s, want 20", c.Pods())
	}
}

func TestExtendedResourcesAreKept(t *testing.T) {
	in := Input{
		Prev: v1.NodeStatus{
			Capacity: list("example.com/dongle", "4", "example.com/gpu", "2", "cpu", "9", "hugepages-64Ki", "1Gi"),
		},
		Capacity:    list("cpu", "2"),
		Allocatable: list("cpu", "2"),
		Devices: Devices{
			Capacity:    list("example.com/gpu", "8"),
			Allocatable: list("example.com/gpu", "7"),
			Gone:        []v1.ResourceName{"example.com/nic"},
		},
	}
	st, _ := Project(in)
	for name, want := range map[v1.ResourceName][2]int64{
		"example.com/dongle": {4, 4},
		"example.com/gpu":    {8, 7},
		"example.com/nic":    {0, 0},
		"cpu":                {2, 2},
	} {
		c, a := st.Capacity[name], st.Allocatable[name]
		if c.Value() != want[0] || a.Value() != want[1] {
			t.Errorf("%s = %s of %s, want %v", name, a.String(), c.String(), want)
		}
	}
	if _, ok := st.Capacity["hugepages-64Ki"]; ok {
		t.Error("a page size that the machine does not have stayed")
	}
	if _, ok := in.Capacity["example.com/gpu"]; ok {
		t.Error("the input was changed")
	}
}

func TestReadyCondition(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-17")
	parity.ProvesPart(t, 4, "NODE-23")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	whole := list("cpu", "1", "memory", "1", "pods", "1", "ephemeral-storage", "1")
	noNet := healthy(now)
	noNet.Status.Network = cri.Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"}
	starting := healthy(now)
	starting.LastReady = time.Time{}
	starting.Status.Runtime = cri.Condition{Reason: "Starting", Message: "shim is missing"}
	for _, tc := range []struct {
		name     string
		health   Health
		ill      []error
		problems []error
		capacity v1.ResourceList
		want     string
	}{
		{"all is well", healthy(now), nil, nil, whole, "True KubeletReady kubelet is posting ready status"},
		{"nothing known yet", Health{}, nil, nil, whole,
			"False KubeletNotReady [container runtime status check may not have completed yet, network state unknown]"},
		{"not ready since the start", starting, nil, nil, whole,
			"False KubeletNotReady [container runtime status check may not have completed yet, " +
				"container runtime not ready: RuntimeReady=false reason:Starting message:shim is missing]"},
		{"no answer for long", healthy(now.Add(-31 * time.Second)), nil, nil, whole,
			"False KubeletNotReady container runtime is down"},
		{"no answer for just as long", healthy(now.Add(-30 * time.Second)), nil, nil, whole,
			"False KubeletNotReady container runtime is down"},
		{"no answer for a while", healthy(now.Add(-29 * time.Second)), nil, nil, whole,
			"True KubeletReady kubelet is posting ready status"},
		{"no network", noNet, nil, nil, whole,
			"False KubeletNotReady container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
				"message:cni plugin not initialized"},
		{"the order of upstream", noNet, []error{errors.New("PLEG is not healthy: x")},
			[]error{errors.New("CSINode is not yet initialized")}, whole,
			"False KubeletNotReady [PLEG is not healthy: x, container runtime network not ready: " +
				"NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized, " +
				"CSINode is not yet initialized]"},
		{"several reasons", Health{}, []error{errors.New("PLEG is not healthy: x")},
			[]error{errors.New("node is shutting down")}, list("cpu", "1"),
			"False KubeletNotReady [container runtime status check may not have completed yet, PLEG is not healthy: x, " +
				"network state unknown, node is shutting down, missing node capacity for resources: memory, pods, " +
				"ephemeral-storage]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := readyCondition(tc.health, tc.ill, tc.problems, tc.capacity, true, now)
			if got := fmt.Sprintf("%s %s %s", v.status, v.reason, v.message); got != tc.want {
				t.Errorf("readiness = %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestConditionTransitions(t *testing.T) {
	parity.Proves(t, "NODE-20")
	parity.ProvesPart(t, 2, "NODE-18")
	parity.ProvesPart(t, 2, "NODE-19")
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	t1 := t0.Add(time.Minute)
	calm := append(pressureVerdicts(nil),
		readyCondition(healthy(t0), nil, nil, list("cpu", "1", "memory", "1", "pods", "1"), false, t0))

	first, events := conditions(nil, calm, t0)
	if got := fmt.Sprint(events); got != "[NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID]" {
		t.Errorf("first events = %s", got)
	}
	foreign := v1.NodeCondition{Type: "KernelDeadlock", Status: v1.ConditionFalse}
	again, events := conditions(append(first, foreign), calm, t1)
	if len(events) != 0 || len(again) != 5 || again[4] != foreign {
		t.Errorf("second time: events %v, conditions %v", events, again)
	}
	for _, c := range again[:4] {
		if !c.LastTransitionTime.Time.Equal(t0) || !c.LastHeartbeatTime.Time.Equal(t1) {
			t.Errorf("%s: transition %v, heartbeat %v", c.Type, c.LastTransitionTime, c.LastHeartbeatTime)
		}
	}
	// Another reason for the same status is no transition.
	ill := append(pressureVerdicts(nil), readyCondition(Health{}, nil, nil, nil, false, t1))
	first, _ = conditions(nil, ill, t0)
	sick := append(pressureVerdicts(nil),
		readyCondition(Health{}, []error{errors.New("PLEG is not healthy: x")}, nil, nil, false, t1))
	changed, events := conditions(first, sick, t1)
	if c, before := changed[3], first[3]; len(events) != 0 || c.Type != v1.NodeReady || c.Message == before.Message ||
		!c.LastTransitionTime.Time.Equal(t0) || !c.LastHeartbeatTime.Time.Equal(t1) {
		t.Errorf("with another reason: events %v, %+v, before %+v", events, c, before)
	}

	bad := append(pressureVerdicts(map[v1.NodeConditionType]bool{
		v1.NodeMemoryPressure: true,
		v1.NodeDiskPressure:   true,
		v1.NodePIDPressure:    true,
	}),
		readyCondition(Health{}, nil, nil, nil, false, t1))
	turned, events := conditions(again, bad, t1)
	if got := fmt.Sprint(events); got != "[NodeHasInsufficientMemory NodeHasDiskPressure NodeHasInsufficientPID "+
		"NodeNotReady]" {
		t.Errorf("events = %s", got)
	}
	if c := turned[0]; c.Reason != "KubeletHasInsufficientMemory" ||
		c.Message != "kubelet has insufficient memory available" || !c.LastTransitionTime.Time.Equal(t1) {
		t.Errorf("memory = %+v", c)
	}
	if turned[1].Reason != "KubeletHasDiskPressure" || turned[2].Reason != "KubeletHasInsufficientPID" {
		t.Errorf("reasons = %s, %s", turned[1].Reason, turned[2].Reason)
	}
	_, events = conditions(turned, calm, t1.Add(time.Minute))
	if got := fmt.Sprint(
		events); got != "[NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID NodeReady]" {
		t.Errorf("events when all is well again = %s", got)
	}
}

func TestImages(t *testing.T) {
	parity.Proves(t, "NODE-33")
	got := images([]*runtimeapi.Image{
		{Size: 1, RepoTags: []string{"a"}},
		{Size: 3, RepoTags: []string{"t1", "t2", "t3"}, RepoDigests: []string{"d1", "d2", "d3"}},
		{Size: 2, Id: "sha256:a"},
		{Size: 2, Id: "sha256:c", RepoTags: []string{"b"}},
	}, 3)
	// Images of the same size are in descending order of their IDs.
	if want := "[{[d1 d2 d3 t1 t2] 3} {[b] 2} {[] 2}]"; fmt.Sprint(got) != want {
		t.Errorf("images = %v, want %s", got, want)
	}
	if got := images(make([]*runtimeapi.Image, 60), -1); len(got) != 60 {
		t.Errorf("without a limit: %d of 60", len(got))
	}
	if got := images(make([]*runtimeapi.Image, 60), 0); len(got) != 0 {
		t.Errorf("with none wanted: %d", len(got))
	}
}

func TestRuntimeVersion(t *testing.T) {
	for in, want := range map[string]string{
		"v2.4.2":     "containerd://2.4.2",
		"1.6.20~ds1": "containerd://1.6.20",
		"2.0.0-rc.1": "containerd://2.0.0-rc.1",
		"weird":      "containerd://weird",
	} {
		if got := runtimeVersion("containerd", in); got != want {
			t.Errorf("runtimeVersion(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestNewNodeObject(t *testing.T) {
	parity.Proves(t, "NODE-04", "NODE-08")
	parity.ProvesPart(t, 2, "NODE-06")
	parity.ProvesPart(t, 4, "NODE-07")
	taint := v1.Taint{Key: "k", Effect: v1.TaintEffectNoExecute}
	n := Identity{
		Name:       "n",
		Hostname:   "h",
		OS:         "linux",
		Arch:       "arm64",
		Labels:     map[string]string{"zone": "z"},
		Taints:     []v1.Taint{taint},
		ProviderID: "cloud://1",
		External:   true,
		ProvidedIP: "192.0.2.2",
	}.object()
	if fmt.Sprint(
		n.Labels) != "map[beta.kubernetes.io/arch:arm64 beta.kubernetes.io/os:linux kubernetes.io/arch:arm64 "+
		"kubernetes.io/hostname:h kubernetes.io/os:linux zone:z]" {
		t.Errorf("labels = %v", n.Labels)
	}
	if n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" ||
		n.Annotations["alpha.kubernetes.io/provided-node-ip"] != "192.0.2.2" {
		t.Errorf("annotations = %v", n.Annotations)
	}
	if n.Spec.ProviderID != "cloud://1" || len(n.Spec.Taints) != 2 || n.Spec.Taints[0] != taint ||
		n.Spec.Taints[1] != (v1.Taint{
			Key:    "node.cloudprovider.kubernetes.io/uninitialized",
			Value:  "true",
			Effect: "NoSchedule",
		}) {
		t.Errorf("spec = %+v", n.Spec)
	}
}

func TestAdopt(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-02")
	parity.ProvesPart(t, 4, "NODE-07")
	parity.ProvesPart(t, 2, "NODE-06")
	i := Identity{
		Name:     "n",
		Hostname: "h",
		OS:       "linux",
		Arch:     "amd64",
		Labels:   map[string]string{"zone": "mine"},
		Taints:   []v1.Taint{{Key: "mine"}},
	}
	existing := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "n",
			Labels:      map[string]string{"kubernetes.io/os": "plan9", "zone": "theirs"},
			Annotations: map[string]string{"x": "y"},
		},
		Status: v1.NodeStatus{
			Capacity:    list("cpu", "2", "hugepages-64Ki", "1Gi", "example.com/gpu", "1"),
			Allocatable: list("cpu", "2", "hugepages-64Ki", "1Gi", "example.com/gpu", "1"),
		},
	}
	n := i.adopt(existing, list("cpu", "2", "hugepages-2Mi", "0"), false)
	if n.Labels["kubernetes.io/os"] != "linux" || n.Labels["kubernetes.io/hostname"] != "h" ||
		n.Labels["zone"] != "theirs" || len(n.Spec.Taints) != 0 {
		t.Errorf("labels %v, taints %v", n.Labels, n.Spec.Taints)
	}
	if n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" || n.Annotations["x"] != "y" {
		t.Errorf("annotations %v", n.Annotations)
	}
	if _, ok := n.Status.Capacity["hugepages-64Ki"]; ok {
		t.Error("a page size that the machine does not have stayed")
	}
	gpu := n.Status.Capacity["example.com/gpu"]
	reset := i.adopt(existing, nil, true).Status.Allocatable["example.com/gpu"]
	if gpu.Value() != 1 || reset.Value() != 0 {
		t.Errorf("extended resource = %s, on a replaced machine %s", gpu.String(), reset.String())
	}
	if existing.Labels["kubernetes.io/os"] != "plan9" {
		t.Error("the object handed in was changed")
	}
	i.External, i.ProvidedIP = true, "192.0.2.2"
	reported := i.adopt(existing, nil, false)
	i.ProvidedIP = ""
	if was, is := reported.Annotations, i.adopt(reported, nil,
		false).Annotations; was["alpha.kubernetes.io/provided-node-ip"] != "192.0.2.2" || len(is) != len(was)-1 {
		t.Errorf("with an address %v, without one any more %v", was, is)
	}
}

func TestDiff(t *testing.T) {
	a := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: v1.NodeStatus{
			Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.2"}},
			Conditions: []v1.NodeCondition{{
				Type:   v1.NodeReady,
				Status: v1.ConditionTrue,
			}, {Type: "Other", Status: v1.ConditionTrue}},
		},
	}
	if patch, err := diff(a, a.DeepCopy()); err != nil || patch != nil {
		t.Errorf("no difference = %s, %v", patch, err)
	}
	b := a.DeepCopy()
	b.Status.Conditions[0].Status = v1.ConditionFalse
	b.Spec.Unschedulable = true // the agent does not write it
	patch, err := diff(a, b)
	if err != nil || strings.Contains(string(patch), "unschedulable") || strings.Contains(string(patch), "addresses") ||
		!strings.Contains(string(patch), `"status":"False"`) {
		t.Errorf("patch = %s, %v", patch, err)
	}
	b.Status.Addresses = append(b.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "fd00::2"})
	patch, err = diff(a, b)
	if err != nil ||
		!strings.Contains(string(patch),
			`"addresses":[{"$patch":"replace"},{"type":"InternalIP","address":"192.0.2.2"},`+
				`{"type":"InternalIP","address":"fd00::2"}]`) {
		t.Errorf("two addresses of a type = %s, %v", patch, err)
	}
}

// TestAdoptLabels: default labels and topology labels get the configured values at each registration. Other labels of
// an existing node are kept.
func TestAdoptLabels(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-02")
	i := Identity{
		Name:     "n",
		Hostname: "h",
		OS:       "linux",
		Arch:     "amd64",
		Labels: map[string]string{
			"topology.kubernetes.io/zone":              "z2",
			"topology.kubernetes.io/region":            "r2",
			"failure-domain.beta.kubernetes.io/zone":   "z2",
			"failure-domain.beta.kubernetes.io/region": "r2",
			"node.kubernetes.io/instance-type":         "big",
			"beta.kubernetes.io/instance-type":         "",
			"kubernetes.io/hostname":                   "chosen",
			"example.com/own":                          "new",
		},
	}
	existing := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		"topology.kubernetes.io/zone":      "z1",
		"node.kubernetes.io/instance-type": "small",
		"beta.kubernetes.io/instance-type": "small",
		"kubernetes.io/hostname":           "h",
		"example.com/own":                  "old",
		"example.com/theirs":               "x",
	}}}
	want := map[string]string{
		"topology.kubernetes.io/zone":              "z2",
		"topology.kubernetes.io/region":            "r2",
		"failure-domain.beta.kubernetes.io/zone":   "z2",
		"failure-domain.beta.kubernetes.io/region": "r2",
		"node.kubernetes.io/instance-type":         "big",
		"kubernetes.io/hostname":                   "chosen",
		"kubernetes.io/os":                         "linux",
		"beta.kubernetes.io/os":                    "linux",
		"kubernetes.io/arch":                       "amd64",
		"beta.kubernetes.io/arch":                  "amd64",
		"example.com/own":                          "old",
		"example.com/theirs":                       "x",
	}
	if got := i.adopt(existing, nil, false).Labels; !maps.Equal(got, want) {
		t.Errorf("labels %v\nwant   %v", got, want)
	}
	if got := (Identity{
		Hostname: "h",
		OS:       "linux",
		Arch:     "amd64",
	}).adopt(existing, nil, false).Labels; got["topology.kubernetes.io/zone"] != "z1" {
		t.Errorf("a label that was not requested is %q", got["topology.kubernetes.io/zone"])
	}
}
