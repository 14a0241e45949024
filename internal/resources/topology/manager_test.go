package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// fakeProvider is a Provider of one resource, which is available on the given NUMA nodes.
type fakeProvider struct {
	name   string
	nodes  []int // with the resource
	logged *[]string
	fails  error
	has    map[types.UID]int
}

func (s *fakeProvider) hints() numa.Hints {
	list := []numa.Hint{}
	for _, n := range s.nodes {
		list = append(list, numa.Hint{Nodes: numa.NodesOf(n), Preferred: true})
	}
	return numa.Hints{s.name: list}
}
func (s *fakeProvider) Hints(_ *v1.Pod, c *v1.Container) numa.Hints {
	*s.logged = append(*s.logged, s.name+" hints "+c.Name)
	return s.hints()
}
func (s *fakeProvider) PodHints(*v1.Pod) numa.Hints {
	*s.logged = append(*s.logged, s.name+" hints")
	return s.hints()
}
func (s *fakeProvider) Allocate(p *v1.Pod, c *v1.Container, at numa.Hint) error {
	*s.logged = append(*s.logged, fmt.Sprintf("%s for %s on %v", s.name, c.Name, at.Nodes))
	if s.fails == nil {
		s.has[p.UID]++
	}
	return s.fails
}
func (s *fakeProvider) Contribute(_ context.Context, p *v1.Pod, _ *v1.Container) (pod.Contribution, error) {
	return pod.Contribution{CDIDevices: []string{s.name}, Annotations: map[string]string{s.name: "x"}}, s.fails
}
func (s *fakeProvider) Release(uid types.UID) { delete(s.has, uid) }
func (s *fakeProvider) Holders() (out []types.UID) {
	for uid := range s.has {
		out = append(out, uid)
	}
	return out
}

// fakeConfirmer is a fakeProvider that is also a Confirmer.
type fakeConfirmer struct{ fakeProvider }

func (o *fakeConfirmer) Confirmed(p *v1.Pod) bool               { return o.has[p.UID] > 0 }
func (o *fakeConfirmer) Confirm(context.Context, *v1.Pod) error { return o.fails }

type stage struct {
	*Manager
	logged []string
	log    bytes.Buffer
	cpu    *fakeProvider
	gpu    *fakeConfirmer
}

func newStage(policy Policy, scope string, cpu, gpu []int) *stage {
	s := &stage{}
	s.cpu = &fakeProvider{name: "cpu", nodes: cpu, logged: &s.logged, has: map[types.UID]int{}}
	s.gpu = &fakeConfirmer{fakeProvider{name: "gpu", nodes: gpu, logged: &s.logged, has: map[types.UID]int{}}}
	s.Manager = New(Config{
		Rules:     Rules{Policy: policy, Nodes: numa.NodesOf(0, 1)},
		Scope:     scope,
		Providers: []Provider{s.cpu, s.gpu},
		Log:       slog.New(slog.NewTextHandler(&s.log, nil)),
		Now:       time.Now,
	})
	return s
}

func example() *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}},
		Containers:     []v1.Container{{Name: "main"}},
		EphemeralContainers: []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"},
		}},
	}}
	p.UID = "u"
	return p
}

func TestAdmit(t *testing.T) {
	parity.Proves(t, "RES-40", "RES-43")
	for _, tc := range []struct {
		name     string
		policy   Policy
		scope    string
		cpu, gpu []int
		says     string
		refused  string
		counts   map[string]float64
	}{
		{"policy none", None, ScopePod, []int{0}, []int{1},
			"cpu for init on |gpu for init on |cpu for main on |gpu for main on ", "",
			map[string]float64{
				"kubelet_topology_manager_admission_requests_total": 1,
				"kubelet_topology_manager_admission_errors_total":   0,
				"kubelet_topology_manager_admission_duration_ms":    1,
			}},
		{"each container is aligned", SingleNUMANode, ScopeContainer, []int{0, 1}, []int{1},
			"cpu hints init|gpu hints init|cpu for init on 1|gpu for init on 1|cpu hints main|gpu hints main|cpu for main on " +
				"1|gpu for main on 1", "",
			map[string]float64{
				"kubelet_container_aligned_compute_resources_count{boundary=numa_node,scope=container}": 2,
			}},
		{"the pod is aligned", SingleNUMANode, ScopePod, []int{0, 1}, []int{1},
			"cpu hints|gpu hints|cpu for init on 1|gpu for init on 1|cpu for main on 1|gpu for main on 1", "",
			map[string]float64{"kubelet_container_aligned_compute_resources_count{boundary=numa_node,scope=pod}": 1}},
		{"no aligned container", SingleNUMANode, ScopeContainer, []int{0}, []int{1},
			"cpu hints init|gpu hints init",
			"TopologyAffinityError: Resources cannot be allocated with Topology locality",
			map[string]float64{
				"kubelet_topology_manager_admission_requests_total":                                             1,
				"kubelet_topology_manager_admission_errors_total":                                               1,
				"kubelet_container_aligned_compute_resources_failure_count{boundary=numa_node,scope=container}": 1,
			}},
		{"no aligned pod", Restricted, ScopePod, []int{0}, []int{1},
			"cpu hints|gpu hints", "TopologyAffinityError: Resources cannot be allocated with Topology locality",
			map[string]float64{"kubelet_topology_manager_admission_errors_total": 1}},
		{"best effort", BestEffort, ScopePod, []int{0}, []int{1},
			"cpu hints|gpu hints|cpu for init on 0,1|gpu for init on 0,1|cpu for main on 0,1|gpu for main on 0,1", "",
			map[string]float64{"kubelet_topology_manager_admission_errors_total": 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(tc.policy, tc.scope, tc.cpu, tc.gpu)
			refused := ""
			if no := s.Admit(example()); no != nil {
				refused = no.Reason + ": " + no.Message
			}
			if got := strings.Join(s.logged, "|"); got != tc.says || refused != tc.refused {
				t.Errorf("%s, refused %q; want\n%s, %q", got, refused, tc.says, tc.refused)
			}
			got := scrape.Of(t, s.Manager)
			for name, n := range tc.counts {
				if got[name] != n {
					t.Errorf("%s = %v, want %v of %v", name, got[name], n, got)
				}
			}
		})
	}
}

func TestRejectionReasons(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	parity.Differs(t, "SRC-37", "0103")
	s := newStage(None, ScopeContainer, nil, nil)
	s.gpu.fails = errors.New("there are none")
	if no := s.Admit(example()); no == nil || no.Reason != "UnexpectedAdmissionError" ||
		no.Message != "Allocate failed due to there are none, which is unexpected" {
		t.Errorf("%+v", no)
	}
	if no := s.Confirm(t.Context(), example()); no == nil || no.Reason != "UnexpectedAdmissionError" {
		t.Errorf("by one who has to ask: %+v", no)
	}
	s.gpu.fails = fmt.Errorf("assign: %w", &pod.Rejection{Reason: "SMTAlignmentError", Message: "half a core"})
	if no := s.Admit(example()); no == nil || no.Reason != "SMTAlignmentError" || no.Message != "half a core" {
		t.Errorf("with a reason of its own: %+v", no)
	}
	s.gpu.fails = nil
	if no := s.Confirm(t.Context(), example()); no != nil {
		t.Errorf("%+v", no)
	}
}

// Aligned and unaligned containers are counted by boundary, in separate metrics.
func TestAlignmentMetrics(t *testing.T) {
	parity.Differs(t, "RES-33", "0103")
	s := newStage(None, ScopeContainer, nil, nil)
	s.InitAligned([]string{"shown"}, []string{"missed"})
	s.CountAligned("physical_cpu", true)
	s.CountAligned("physical_cpu", true)
	s.CountAligned("uncore_cache", false)
	got := scrape.Of(t, s.Manager)
	for series, want := range map[string]float64{
		"kubelet_container_aligned_compute_resources_count{boundary=physical_cpu,scope=container}":         2,
		"kubelet_container_aligned_compute_resources_count{boundary=shown,scope=container}":                0,
		"kubelet_container_aligned_compute_resources_failure_count{boundary=missed,scope=container}":       0,
		"kubelet_container_aligned_compute_resources_failure_count{boundary=uncore_cache,scope=container}": 1,
	} {
		if n, ok := got[series]; !ok || n != want {
			t.Errorf("%s is %v, want %v, of %v", series, n, want, got)
		}
	}
}

func TestContribution(t *testing.T) {
	s := newStage(None, ScopeContainer, nil, nil)
	got, err := s.Contribution(t.Context(), example(), nil)
	if err != nil || !slices.Equal(got.CDIDevices, []string{"cpu", "gpu"}) || len(got.Annotations) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	s.gpu.fails = errors.New("broken")
	if _, err := s.Contribution(t.Context(), example(), nil); !errors.Is(err, s.gpu.fails) {
		t.Errorf("%v", err)
	}
}

// If one resource cannot be allocated, a running pod still gets the others, and a new pod is rejected.
func TestAdoptRunningPod(t *testing.T) {
	for _, scope := range []string{ScopeContainer, ScopePod} {
		s := newStage(BestEffort, scope, []int{0}, []int{0})
		s.cpu.fails = errors.New("none left")
		p := example()
		if no := s.Admit(p); no == nil || no.Message != "Allocate failed due to none left, which is unexpected" ||
			len(s.gpu.has) > 0 {
			t.Errorf("%s: refused with %+v, holders %v", scope, no, s.gpu.has)
		}
		if s.Adopt(p); s.gpu.has[p.UID] != 2 {
			t.Errorf("%s: it has %d, and is to have it for both containers", scope, s.gpu.has[p.UID])
		}
		if logged := s.log.String(); strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "none left") {
			t.Errorf("%s: logged %s", scope, logged)
		}
		// The next agent does not call a provider that has confirmed the pod, and that may not be able to allocate yet.
		s.log.Reset()
		s.cpu.fails, s.gpu.fails = nil, errors.New("not back yet")
		if s.Adopt(p); s.cpu.has[p.UID] != 2 || s.log.Len() > 0 {
			t.Errorf("%s: it has %d, logged %s", scope, s.cpu.has[p.UID], &s.log)
		}
	}
}

func TestReleaseAndPrune(t *testing.T) {
	s := newStage(None, ScopeContainer, nil, nil)
	for _, uid := range []types.UID{"a", "b", "c"} {
		p := example()
		p.UID = uid
		s.Adopt(p)
	}
	s.Release("a")
	s.Release("a")
	s.Prune(func(uid types.UID) bool { return uid == "c" })
	for _, by := range []Provider{s.cpu, s.gpu} {
		if got := by.Holders(); !slices.Equal(got, []types.UID{"c"}) {
			t.Errorf("left: %v", got)
		}
	}
}
