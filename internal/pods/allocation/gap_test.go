package allocation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func with(requests, limits v1.ResourceList) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: requests, Limits: limits}
}

func running(names ...string) pod.Runtime {
	var have pod.Runtime
	for _, n := range names {
		have.Containers = append(have.Containers, pod.Container{ID: n + "-id", Name: n, State: pod.StateRunning})
	}
	return have
}

func TestGap(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-123")
	base := with(amounts("cpu", "1", "memory", "1Gi"), amounts("cpu", "2", "memory", "2Gi"))
	for _, tc := range []struct {
		name          string
		now           v1.ResourceRequirements
		granted       v1.ResourceRequirements
		nowPod, whole *v1.ResourceRequirements
		policy        []v1.ContainerResizePolicy
		stopped       bool
		failing       bool
		update        string
		restart, pod  bool
	}{
		{name: "nothing", now: base, granted: base},
		{name: "the same in other units", now: base, granted: with(amounts("cpu", "1000m", "memory", "1024Mi"), base.Limits)},
		{
			name:    "a limit of CPU",
			now:     base,
			granted: with(base.Requests, amounts("cpu", "3", "memory", "2Gi")),
			update:  "main cpu limit 2000→3000",
		},
		{
			name:    "a request of CPU",
			now:     base,
			granted: with(amounts("cpu", "500m", "memory", "1Gi"), base.Limits),
			update:  "main cpu request 1000→500",
		},
		{
			name:    "both: the limit says where it goes",
			now:     base,
			granted: with(amounts("cpu", "2", "memory", "1Gi"), amounts("cpu", "1", "memory", "2Gi")),
			update:  "main cpu limit 2000→1000",
		},
		{name: "memory comes before CPU", now: base, granted: with(base.Requests, amounts("cpu", "1", "memory", "1Gi")), update: "main memory limit 2147483648→1073741824, main cpu limit 2000→1000"},
		{
			name:    "a limit that was not there",
			now:     with(base.Requests, nil),
			granted: with(base.Requests, amounts("cpu", "2")),
			update:  fmt.Sprintf("main cpu limit %d→2000", int64(Unlimited)),
		},
		{
			name:    "one that wants a restart for memory, and memory",
			now:     base,
			granted: with(amounts("cpu", "1", "memory", "2Gi"), base.Limits),
			policy:  []v1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: v1.RestartContainer}},
			restart: true,
		},
		{
			name:    "one that wants a restart for memory, and CPU",
			now:     base,
			granted: with(amounts("cpu", "2", "memory", "1Gi"), base.Limits),
			policy:  []v1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: v1.RestartContainer}},
			update:  "main cpu request 1000→2000",
		},
		{
			name:    "one that takes it as it runs by name",
			now:     base,
			granted: with(amounts("cpu", "2", "memory", "1Gi"), base.Limits),
			policy:  []v1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: v1.NotRequired}},
			update:  "main cpu request 1000→2000",
		},
		{name: "what does not run", now: base, granted: with(base.Requests, amounts("cpu", "3")), stopped: true},
		{
			name:    "the limit of the pod, of a container without one",
			now:     with(nil, nil),
			granted: with(nil, nil),
			nowPod:  ptr.To(with(nil, amounts("memory", "1Gi"))),
			whole:   ptr.To(with(nil, amounts("memory", "2Gi"))),
			update:  "main memory limit 1073741824→2147483648",
			pod:     true,
		},
		{
			name:    "the limit of the pod, of a container without one that wants a restart for memory",
			now:     with(nil, nil),
			granted: with(nil, nil),
			nowPod:  ptr.To(with(nil, amounts("memory", "1Gi"))),
			whole:   ptr.To(with(nil, amounts("memory", "2Gi"))),
			policy:  []v1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: v1.RestartContainer}},
			restart: true,
			pod:     true,
		},
		{
			name:    "the same, which could not be put in force",
			now:     with(nil, nil),
			granted: with(nil, nil),
			nowPod:  ptr.To(with(nil, amounts("memory", "1Gi"))),
			whole:   ptr.To(with(nil, amounts("memory", "2Gi"))),
			policy:  []v1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: v1.RestartContainer}},
			failing: true,
			update:  "main memory limit 1073741824→2147483648",
			pod:     true,
		},
		{
			name:    "the limit of the pod, of a container with its own",
			now:     base,
			granted: base,
			nowPod:  ptr.To(with(nil, amounts("memory", "3Gi"))),
			whole:   ptr.To(with(nil, amounts("memory", "4Gi"))),
			pod:     true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{
				Resources:  tc.whole,
				Containers: []v1.Container{{Name: "main", Resources: tc.granted, ResizePolicy: tc.policy}},
			}}
			have := running("main")
			if tc.stopped {
				have.Containers[0].State = pod.StateExited
			}
			g := gap(p, have, Resources{
				Containers: map[string]v1.ResourceRequirements{"main": tc.now},
				Pod:        tc.nowPod,
			}, tc.failing)
			var logged []string
			for _, c := range g.Update {
				what := "request"
				if c.Limit {
					what = "limit"
				}
				logged = append(logged, fmt.Sprintf("%s %s %s %d→%d", c.Container, c.Resource, what, c.Now, c.Next))
			}
			if got := strings.Join(logged, ", "); got != tc.update || g.Pod != tc.pod ||
				slices.Equal(g.Restart, []string{"main"}) != tc.restart {
				t.Errorf("update %q, restart %v, pod %v; want %q, %v, %v", got, g.Restart, g.Pod, tc.update, tc.restart,
					tc.pod)
			}
		})
	}
}

func TestPlanOrder(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-123")
	small, large := Size{Weight: 10, Quota: 1000, Memory: 100}, Size{Weight: 20, Quota: 2000, Memory: 200}
	up := func(c string, r v1.ResourceName) Change { return Change{Container: c, Resource: r, Now: 1, Next: 2} }
	down := func(c string, r v1.ResourceName) Change { return Change{Container: c, Resource: r, Now: 2, Next: 1} }
	for _, tc := range []struct {
		name      string
		now, next Size
		changes   []Change
		want      string
	}{
		{"nothing", small, small, nil, ""},
		{"a pod increases before its containers", small, large, []Change{up("a", "cpu"), up("a", "memory")}, "pod memory limit, a memory, pod cpu limit, pod cpu weight, a cpu"},
		{"a pod decreases after its containers", large, small, []Change{down("a", "cpu"), down("a", "memory")}, "a memory, pod memory limit, a cpu, pod cpu weight, pod cpu limit"},
		{
			"decreases come before increases",
			small,
			small,
			[]Change{up("a", "cpu"), down("b", "cpu"), up("c", "cpu"), down("d", "cpu")},
			"b cpu, d cpu, a cpu, c cpu",
		},
		{"one resource decreases, another increases", Size{Weight: 10, Quota: Unlimited, Memory: 200}, Size{Weight: 20, Quota: 1000, Memory: 100}, []Change{down("a", "memory"), up("a", "cpu")}, "a memory, pod memory limit, pod cpu weight, a cpu, pod cpu limit"},
		{"the pod alone", small, large, nil, "pod memory limit, pod cpu limit, pod cpu weight"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var logged []string
			for _, s := range Plan(tc.now, tc.next, tc.changes) {
				switch {
				case s.Change != nil:
					logged = append(logged, s.Change.Container+" "+string(s.Resource))
				case s.Limit:
					logged = append(logged, "pod "+string(s.Resource)+" limit")
				default:
					logged = append(logged, "pod "+string(s.Resource)+" weight")
				}
			}
			if got := strings.Join(logged, ", "); got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestMemoryIsNotLimitedBelowItsUse(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-123")
	used := func(id string) (int64, error) {
		if id == "lost" {
			return 0, errors.New("not found")
		}
		return 150, nil
	}
	change := func(id string, now, next int64) []Change {
		return []Change{{Container: "c", ID: id, Resource: "memory", Now: now, Next: next, Limit: true}}
	}
	for _, tc := range []struct {
		now, next int64 // of the pod
		changes   []Change
		want      string
	}{
		{200, 100, nil, "cannot decrease memory limits: attempting to set pod memory limit (100) below current usage (150)"},
		{200, 100, change("a", 200, 50), "cannot decrease memory limits: [" +
			"attempting to set pod memory limit (100) below current usage (150), " +
			`attempting to set container "c" memory limit (50) below current usage (150)]`},
		{200, 160, change("a", 200, 160), ""},
		{200, 200, change("a", 200, 100), `cannot decrease memory limits: attempting to set container "c" memory limit (100) below current usage (150)`},
		{50, 100, change("a", 50, 100), ""}, // more, though it is too little
		{200, 200, change("lost", 200, 100), `read the memory usage of container "c": not found`},
		{200, 200, []Change{{Container: "c", Resource: "cpu", Now: 200, Next: 1, Limit: true}}, ""},
	} {
		got := ""
		if err := BelowUsage(Size{Memory: tc.now}, Size{Memory: tc.next}, tc.changes, used); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%d→%d %+v: %q, want %q", tc.now, tc.next, tc.changes, got, tc.want)
		}
	}
}

func TestFeasible(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-127")
	all := Rules{InPlace: true, InitContainers: true, PodLevel: true}
	guaranteed := func(cpu string) *v1.Pod {
		return edited(asking("p", cpu), func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = with(amounts("cpu", cpu, "memory", "1Gi"),
				amounts("cpu", cpu, "memory", "1Gi"))
		})
	}
	guaranteedMemory := func(memory string) *v1.Pod {
		return edited(asking("p", "1"), func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = with(amounts("cpu", "1", "memory", memory),
				amounts("cpu", "1", "memory", memory))
		})
	}
	init := func(cpu string) *v1.Pod {
		return edited(asking("p", "1"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: with(amounts("cpu", cpu), nil)}}
		})
	}
	memory := func(q string, policy v1.ResourceResizeRestartPolicy) *v1.Pod {
		return edited(asking("p", "1"), func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = with(amounts("memory", q), nil)
			p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
				{ResourceName: "memory", RestartPolicy: policy},
			}
		})
	}
	swapping := all
	swapping.MaySwap = func(*v1.Pod, *v1.Container) bool { return true }
	static := func(f func(*Rules)) Rules { r := all; f(&r); return r }
	for _, tc := range []struct {
		name      string
		rules     Rules
		was, want *v1.Pod
		message   string
	}{
		{"what fits", all, asking("p", "1"), asking("p", "4"), ""},
		{"more CPU than the node has: admission defers it", all, asking("p", "1"), asking("p", "4001m"), ""},
		{"more memory than the node has", all, memory("1Gi", v1.NotRequired), memory("5Gi", v1.NotRequired), ""},
		{"a static pod", all, asking("p", "1"), edited(asking("p", "2"), func(p *v1.Pod) {
			p.Annotations = map[string]string{pod.AnnotationConfigSource: "file"}
		}), ""},
		{"no resizes at all", Rules{}, asking("p", "1"), asking("p", "2"), "InPlacePodVerticalScaling is disabled"},
		{"whole CPUs, of a guaranteed pod", static(func(r *Rules) { r.StaticCPU = true }), guaranteed("1"), guaranteed("2"), `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`},
		{"whole CPUs, of another", static(func(r *Rules) { r.StaticCPU = true }), asking("p", "1"), asking("p", "2"), ""},
		{"memory of a NUMA node", static(func(r *Rules) { r.StaticMemory = true }), guaranteed("1"), guaranteedMemory("2Gi"), `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`},
		{
			"memory beside whole CPUs",
			static(func(r *Rules) { r.StaticCPU = true }),
			guaranteed("1"),
			guaranteedMemory("2Gi"),
			"",
		},
		{
			"CPU beside memory of a NUMA node",
			static(func(r *Rules) { r.StaticMemory = true }),
			guaranteed("1"),
			guaranteed("2"),
			"",
		},
		{
			"the pod as a whole, the gate off",
			static(func(r *Rules) { r.PodLevel = false }),
			asking("p", "1"),
			edited(asking("p", "1"), func(p *v1.Pod) {
				p.Spec.Resources = ptr.To(with(amounts("cpu", "2"), nil))
			}),
			"InPlacePodLevelResourcesVerticalScaling is disabled",
		},
		{
			"memory of a container that swaps",
			swapping,
			memory("1Gi", v1.NotRequired),
			memory("2Gi", v1.NotRequired),
			"In-place resize of containers with swap is not supported.",
		},
		{"the same with a restart", swapping, memory("1Gi", v1.RestartContainer), memory("2Gi", v1.RestartContainer), ""},
		{"CPU of a container that swaps", swapping, asking("p", "1"), asking("p", "2"), ""},
		{"an init container", all, init("1"), init("2"), ""},
		{"an init container, the gate off", static(func(r *Rules) { r.InitContainers = false }), init("1"), init("2"), "In-place resize of non-restartable init containers is not supported"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.rules.feasible(tc.want, Of(tc.was)); got.message != tc.message ||
				(got.detail == "") != (tc.message == "") {
				t.Errorf("%+v, want %q", got, tc.message)
			}
		})
	}
}

func TestBetweenChangesOneResource(t *testing.T) {
	now := with(amounts("cpu", "1", "memory", "1Gi"), amounts("memory", "1Gi"))
	next := with(amounts("cpu", "2", "memory", "2Gi", "ephemeral-storage", "1Gi"), amounts("cpu", "3", "memory", "2Gi"))
	if got := Between(now, next, "cpu"); !same(got,
		with(amounts("cpu", "2", "memory", "1Gi", "ephemeral-storage", "1Gi"), amounts("cpu", "3", "memory", "1Gi"))) {
		t.Errorf("CPU: %+v", got)
	}
	if got := Between(now, next, "memory"); !same(got,
		with(amounts("cpu", "1", "memory", "2Gi", "ephemeral-storage", "1Gi"), amounts("memory", "2Gi"))) {
		t.Errorf("memory: %+v", got)
	}
}

func TestOnDoesNotChangePod(t *testing.T) {
	p := asking("p", "1")
	if Of(p).On(p) != p {
		t.Error("a pod that has what it wants is copied")
	}
	granted := Resources{Containers: map[string]v1.ResourceRequirements{
		"main":  with(amounts("cpu", "2"), nil),
		"other": {},
	}}
	if got := granted.On(p); milli(got) != 2000 || milli(p) != 1000 || got.UID != types.UID("p") {
		t.Errorf("got %d, the pod itself has %d", milli(got), milli(p))
	}
}
