package eviction

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

// mi returns n MiB in bytes.
func mi(n uint64) *uint64 { n <<= 20; return &n }

func amount(text string) resource.Quantity { return resource.MustParse(text) }

// asks returns a pod whose container requests an amount of a resource.
func asks(name string, priority int32, res v1.ResourceName, text string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec:       v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "main"}}},
	}
	if text != "" {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{res: amount(text)}
	}
	return p
}

// order returns the names of the pods in the order in which Choose selects them.
func order(s Signal, d Disks, from []Candidate) string {
	var out []string
	for left := slices.Clone(from); ; {
		c, ok := Choose(met(s), left, d, now)
		if !ok {
			return strings.Join(out, " ")
		}
		out = append(out, c.Pod.Name)
		left = slices.DeleteFunc(left, func(o Candidate) bool { return o.Pod == c.Pod })
	}
}

func met(s Signal) Met {
	return Met{Threshold{
		Signal: s,
		Least:  Amount{Quantity: amount("100Mi")},
	}, Observation{Capacity: 1 << 30, Available: 80 << 20, At: now}}
}

func TestChooseByMemory(t *testing.T) {
	parity.Proves(t, "EVIC-16")
	parity.ProvesPart(t, 3, "LIFE-117")
	use := func(p *v1.Pod, n uint64) Candidate { return Candidate{p, Use{At: now, Memory: mi(n)}} }
	heavy := asks("overhead", 0, v1.ResourceMemory, "100Mi")
	heavy.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: amount("400Mi")}
	bare := asks("overhead-alone", 0, v1.ResourceMemory, "")
	bare.Spec.Overhead = heavy.Spec.Overhead
	whole := asks("as-a-pod", 0, "", "")
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: amount("350Mi")}}
	pods := []Candidate{
		use(asks("within-low", -5, v1.ResourceMemory, "500Mi"), 400),
		use(asks("over-high", 10, v1.ResourceMemory, "100Mi"), 900),
		use(asks("over-by-300", 0, v1.ResourceMemory, "500Mi"), 800),
		use(asks("over-by-350", 0, v1.ResourceMemory, ""), 350),
		use(asks("within", 0, v1.ResourceMemory, "500Mi"), 499),
		use(heavy, 450), // within its request, because the overhead is added to it
		use(bare, 320),  // over by its whole usage: overhead counts only for pods that request the resource
		use(whole, 400), // over by 50
	}
	const want = "over-by-350 overhead-alone over-by-300 as-a-pod over-high within-low within overhead"
	if got := order(MemoryAvailable, Disks{}, pods); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if order(AllocatableMemory, Disks{}, pods) != order(MemoryAvailable, Disks{}, pods) {
		t.Error("memory of all pods is given back in another order")
	}
}

func TestChooseByProcesses(t *testing.T) {
	parity.Proves(t, "EVIC-17")
	use := func(name string, priority int32, n uint64) Candidate {
		return Candidate{asks(name, priority, v1.ResourceMemory, ""), Use{At: now, Processes: &n, Memory: mi(1)}}
	}
	pods := []Candidate{use("few", 0, 5), use("important", 7, 9000), use("many", 0, 700), use("unimportant", -1, 1)}
	if got := order(PIDAvailable, Disks{}, pods); got != "unimportant many few important" {
		t.Error(got)
	}
}

func TestChooseByDiskUsage(t *testing.T) {
	parity.Proves(t, "EVIC-18")
	use := func(name string, priority int32, request string, logs, layer, volume uint64) Candidate {
		return Candidate{asks(name, priority, v1.ResourceEphemeralStorage, request), Use{
			At: now,
			Containers: []ContainerUse{{
				Name:  "main",
				Logs:  &Space{logs << 20, logs},
				Layer: &Space{layer << 20, layer},
			}},
			Volumes: map[string]VolumeUse{
				"v":     {Space{volume << 20, volume}, true},
				"claim": {Space{1 << 40, 1 << 20}, false},
			},
		}}
	}
	pods := []Candidate{
		use("logs", 0, "", 30, 0, 0), use("layer", 0, "", 0, 40, 0), use("volume", 0, "", 0, 0, 20),
		use("within", -3, "1Gi", 100, 100, 100), use("high", 5, "", 900, 900, 900),
	}
	shared, apart, split := Disks{}, Disks{Images: true}, Disks{Images: true, Containers: true}
	for _, tc := range []struct {
		signal Signal
		disks  Disks
		want   string
	}{
		{NodeFSAvailable, shared, "layer logs volume high within"},
		{ImageFSAvailable, shared, "layer logs volume high within"},
		{ContainerFSAvailable, shared, "layer logs volume high within"},
		{NodeFSInodesFree, shared, "within layer logs volume high"}, // pods cannot request inodes
		{NodeFSAvailable, apart, "logs volume high within layer"},   // logs and volumes count
		{ImageFSAvailable, apart, "layer high within logs volume"},
		{ContainerFSAvailable, apart, "layer high within logs volume"},
		{NodeFSAvailable, split, "layer logs volume high within"},
		{ContainerFSAvailable, split, "layer logs volume high within"},
		{NodeFSInodesFree, apart, "within logs volume high layer"},
		{ContainerFSInodesFree, apart, "within layer high logs volume"},
		{ImageFSAvailable, split, "within layer logs volume high"}, // nothing of pods is on this file system
	} {
		if got := order(tc.signal, tc.disks, pods); got != tc.want {
			t.Errorf("%s, %+v: %s, want %s", tc.signal, tc.disks, got, tc.want)
		}
	}
}

func TestChooseExemptsPods(t *testing.T) {
	parity.Proves(t, "EVIC-22")
	static, mirror := asks("static", 0, v1.ResourceMemory, ""), asks("mirror", 0, v1.ResourceMemory, "")
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	mirror.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
	pods := map[*v1.Pod]Use{
		static: {At: now, Memory: mi(900)},
		mirror: {At: now, Memory: mi(900)},
		asks("critical", 2_000_000_000, v1.ResourceMemory, ""):         {At: now, Memory: mi(900)},
		asks("unknown", 0, v1.ResourceMemory, ""):                      {At: now},
		asks("measured-long-ago", 0, v1.ResourceMemory, ""):            {At: after(-31), Memory: mi(900)},
		asks("nearly-critical", 1_999_999_999, v1.ResourceMemory, ""):  {At: now, Memory: mi(1)},
		asks("within-its-request", 0, v1.ResourceMemory, "1Gi"):        {At: now, Memory: mi(1)},
		asks("leaving-since-a-while", 0, v1.ResourceMemory, ""):        {At: now, Memory: mi(900)},
		asks("of-which-nothing-is-known", 0, v1.ResourceMemory, "1Gi"): {},
	}
	uses := map[types.UID]Use{}
	for p, u := range pods {
		if !u.At.IsZero() {
			uses[p.UID] = u
		}
	}
	from := Candidates(slices.Collect(maps.Keys(pods)), uses, map[types.UID]bool{"leaving-since-a-while": true})
	if got := order(MemoryAvailable, Disks{}, from); got != "nearly-critical within-its-request" {
		t.Errorf("chosen: %s", got)
	}
	big := resource.MustParse("1")
	for p := range pods {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: big}
	}
	for i := range from {
		from[i].Use.Containers = []ContainerUse{{Name: "main", Logs: &Space{Bytes: 2}}}
	}
	var got []string
	for _, b := range Breaches(from, Disks{}, now) {
		got = append(got, b.Pod.Name)
	}
	slices.Sort(got)
	if fmt.Sprint(got) != "[nearly-critical unknown within-its-request]" {
		t.Errorf("over their limits: %v", got)
	}
}

func TestGrace(t *testing.T) {
	parity.Differs(t, "EVIC-20", "0028")
	soft := Met{Threshold: Threshold{Signal: MemoryAvailable, Grace: time.Minute}}
	for _, tc := range []struct {
		met          Met
		longest, own int64 // own -1: the default
		want         time.Duration
	}{
		{met(MemoryAvailable), 60, 60, time.Second},
		{met(MemoryAvailable), 0, 0, time.Second},
		{soft, 0, 60, time.Second},
		{soft, -5, 60, time.Second},
		{soft, 60, 20, 20 * time.Second},
		{soft, 20, 60, 20 * time.Second},
		{soft, 60, -1, 30 * time.Second},
		{soft, 60, 0, time.Second},
	} {
		p := &v1.Pod{}
		if tc.own >= 0 {
			p.Spec.TerminationGracePeriodSeconds = ptr.To(tc.own)
		}
		if got := Grace(tc.met, p, time.Duration(tc.longest)*time.Second); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

func TestEvictionMessage(t *testing.T) {
	parity.Proves(t, "EVIC-23")
	parity.ProvesPart(t, 6, "EVIC-21")
	p := asks("hungry", 0, v1.ResourceMemory, "50Mi")
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{{Name: "helper", RestartPolicy: &always}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debugger"},
	}}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{
		Name:      "modest",
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: amount("1Gi")}},
	})
	c := Candidate{p, Use{
		At:     now,
		Memory: mi(700),
		Containers: []ContainerUse{
			{Name: "helper", Memory: mi(200)},
			{Name: "main", Memory: mi(400)},
			{Name: "modest", Memory: mi(100)},
			{Name: "debugger", Memory: mi(300)},
		},
	}}
	message, notes := evictionMessage(met(MemoryAvailable), c)
	if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. " +
		"Container helper was using 200Mi, request is 0, has larger consumption of memory. Container main was using " +
		"400Mi, request is 50Mi, has larger consumption of memory. "; message != want {
		t.Errorf("message %q", message)
	}
	want := "map[offending_containers:helper,main offending_containers_usage:200Mi,400Mi starved_resource:memory]"
	if fmt.Sprint(notes) != want {
		t.Errorf("annotations %v", notes)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: amount("600Mi")}}
	message, notes = evictionMessage(met(MemoryAvailable), c)
	if !strings.Contains(message, "available: 80Mi. Pod hungry was using 700Mi, request is 600Mi, "+
		"has larger consumption of memory. Container helper") ||
		notes["offending_pod"] != "hungry" || notes["offending_pod_usage"] != "700Mi" {
		t.Errorf("of a pod as a whole: %q, %v", message, notes)
	}
	message, _ = evictionMessage(met(PIDAvailable), c)
	if !strings.HasPrefix(message, "The node was low on resource: pids. "+
		"Threshold quantity: 100Mi, available: 83886080. ") {
		t.Errorf("of processes: %q", message)
	}
	// Available bytes have binary suffixes, available inodes and process IDs are decimal. The threshold quantity of a
	// percentage always has a binary suffix.
	for signal, want := range map[Signal]string{
		MemoryAvailable:       "memory. Threshold quantity: 4Ki, available: 2Ki. ",
		NodeFSAvailable:       "ephemeral-storage. Threshold quantity: 4Ki, available: 2Ki. ",
		PIDAvailable:          "pids. Threshold quantity: 4Ki, available: 2048. ",
		NodeFSInodesFree:      "inodes. Threshold quantity: 4Ki, available: 2048. ",
		ImageFSInodesFree:     "inodes. Threshold quantity: 4Ki, available: 2048. ",
		ContainerFSInodesFree: "inodes. Threshold quantity: 4Ki, available: 2048. ",
	} {
		least := Threshold{Signal: signal, Least: Amount{Percent: 0.5}}
		message, _ := evictionMessage(Met{least, Observation{Capacity: 8192, Available: 2048, At: now}},
			Candidate{asks("p", 0, "", ""), Use{At: now}})
		if message != "The node was low on resource: "+want {
			t.Errorf("of %s: %q", signal, message)
		}
	}
}

// TestChooseAgreesWithSortedPods compares the chosen pod with each other pod, for random pods.
func TestChooseAgreesWithSortedPods(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var from []Candidate
		for i := range 1 + rnd.IntN(8) {
			p := asks(fmt.Sprint("p", i), rnd.Int32N(3), v1.ResourceMemory, fmt.Sprint(1+rnd.IntN(4), "Mi"))
			from = append(from, Candidate{p, Use{At: now, Memory: mi(uint64(rnd.IntN(6)))}})
		}
		got, ok := Choose(met(MemoryAvailable), from, Disks{}, now)
		if !ok {
			t.Fatal("no victim")
		}
		over := func(c Candidate) int64 { return int64(*c.Use.Memory) - requested(c.Pod, v1.ResourceMemory) }
		for _, other := range from {
			switch {
			case over(other) > 0 && over(got) <= 0:
				t.Fatal("one within its request is chosen before one that is over")
			case (over(other) > 0) != (over(got) > 0):
			case *other.Pod.Spec.Priority < *got.Pod.Spec.Priority:
				t.Fatal("one of a higher priority is chosen")
			case *other.Pod.Spec.Priority == *got.Pod.Spec.Priority && over(other) > over(got):
				t.Fatal("one that is over by less is chosen")
			}
		}
	}
}
