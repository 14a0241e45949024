package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/host/machine"
	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
	"keelson/test/kit/scrape"
)

// stage is a Manager on a simulated machine. A restart of the agent replaces the Manager.
type stage struct {
	*Manager
	t       *testing.T
	cfg     Config
	aligned map[string]int
	changes int

	unusable []error
}

// unknown is Config.Running of a runtime that does not answer.
func unknown() ([]Pinned, error) { return nil, errors.New("no answer") }

func newStage(t *testing.T, m placement.Machine, edit func(*Config)) *stage {
	layout, err := machine.ReadLayout(m.Files(), machine.Info{})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, aligned: map[string]int{}}
	s.cfg = Config{
		Dir:          t.TempDir(),
		Policy:       PolicyStatic,
		Machine:      layout,
		ReservedCPUs: cpuset.New(0),
		Running:      unknown,
		OnCorrupt:    func(err error) { s.unusable = append(s.unusable, err) },
		CountAligned: func(boundary string, ok bool) { s.aligned[fmt.Sprint(boundary, " ", ok)]++ },
		OnChange:     func() { s.changes++ },
		Log:          slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&s.cfg)
	}
	s.restart()
	return s
}

func (s *stage) restart() {
	s.t.Helper()
	p, err := New(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Manager = p
}

func whole(name string, cpus ...string) *v1.Pod {
	p := placement.Pod{Name: name}
	for i, n := range cpus {
		p.Containers = append(p.Containers, placement.Container{Name: fmt.Sprint("c", i), CPU: n, Memory: "16Mi"})
	}
	return p.Spec()
}

var twoSockets = placement.Machine{Sockets: 2, Nodes: 1, Cores: 4, Threads: 2}

// holds fails if a CPU is assigned twice, if a reserved CPU is exclusive, or if the shared pool is not the remaining
// CPUs.
func (s *stage) holds() {
	s.t.Helper()
	own := cpuset.New()
	for uid, containers := range s.assigned {
		mine := cpuset.New()
		for name, set := range containers {
			if !set.Intersection(own).IsEmpty() {
				s.t.Fatalf("%s/%s has %v, which others have", uid, name, set)
			}
			mine = mine.Union(set)
		}
		own = own.Union(mine)
	}
	switch rest := s.all().Difference(own); {
	case !own.Intersection(s.reserved).IsEmpty():
		s.t.Fatalf("of the reserved %v, a container has %v", s.reserved, own)
	case !s.shared.Equals(rest):
		s.t.Fatalf("shared are %v, the rest is %v", s.shared, rest)
	}
}

// TestExclusiveCPUsAreDisjoint allocates and releases CPUs of random pods on random machines, with random options and
// with restarts of the agent in between.
func TestExclusiveCPUsAreDisjoint(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-26")
	rnd := rand.New(rand.NewPCG(3, 5))
	for round := range 150 {
		m := placement.Machine{
			Sockets:  1 + rnd.IntN(3),
			Nodes:    1 + rnd.IntN(3),
			Caches:   1 + rnd.IntN(2),
			Cores:    1 + rnd.IntN(4),
			Threads:  1 + rnd.IntN(2),
			Adjacent: rnd.IntN(2) == 0,
		}
		o := Options{
			FullCores:  rnd.IntN(4) == 0,
			Strict:     rnd.IntN(3) == 0,
			AcrossNUMA: rnd.IntN(3) == 0,
			BySocket:   rnd.IntN(4) == 0,
		}
		if !o.AcrossNUMA {
			o.ByCache = rnd.IntN(2) == 0
			o.AcrossCores = !o.ByCache && !o.FullCores && rnd.IntN(2) == 0
		}
		t.Run(fmt.Sprintf("%d %+v %+v", round, m, o), func(t *testing.T) {
			s := newStage(t, m, func(c *Config) {
				c.Options = o
				if len(c.Machine.CPUs) > 2 && rnd.IntN(2) == 0 {
					c.ReservedCPUs, c.Reserved = cpuset.New(), int64(1+rnd.IntN(2000))
				}
			})
			here := map[types.UID]int{}
			for step := range 25 {
				switch k := rnd.IntN(10); {
				case k < 6:
					p, n := whole(fmt.Sprint("p", step)), 0
					for i := range 1 + rnd.IntN(2) {
						cpus := 1 + rnd.IntN(6)
						n += cpus
						p.Spec.Containers = append(p.Spec.Containers, whole("", fmt.Sprint(cpus)).Spec.Containers[0])
						p.Spec.Containers[i].Name = fmt.Sprint("c", i)
					}
					at := numa.Hint{Nodes: numa.Nodes(rnd.IntN(4))}
					err := s.Allocate(p, &p.Spec.Containers[0], at)
					for i := 1; err == nil && i < len(p.Spec.Containers); i++ {
						err = s.Allocate(p, &p.Spec.Containers[i], at)
					}
					if err != nil {
						s.Release(p.UID)
					} else if here[p.UID] = n; s.sum(p.UID) != n {
						t.Fatalf("%s has %v, and asked for %d", p.UID, s.assigned[p.UID], n)
					}
				case k < 9:
					for uid := range here {
						s.Release(uid)
						delete(here, uid)
						break
					}
				default:
					before := s.clone()
					s.restart()
					if !s.shared.Equals(before.shared) || len(s.assigned) != len(before.assigned) {
						t.Fatalf("an agent later: %v %v, before %v %v", s.shared, s.assigned, before.shared,
							before.assigned)
					}
				}
				s.holds()
				if len(s.assigned) != len(here) {
					t.Fatalf("%v have CPUs, and there are %v", s.assigned, here)
				}
			}
		})
	}
}

func (s *stage) sum(uid types.UID) (n int) {
	for _, set := range s.assigned[uid] {
		n += set.Size()
	}
	return n
}

func TestGuaranteedCPUs(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-26")
	s := newStage(t, twoSockets, nil)
	loose := placement.Pod{
		Name:       "loose",
		Loose:      true,
		Containers: []placement.Container{{Name: "c0", CPU: "2", Memory: "16Mi"}},
	}
	together := whole("together", "2")
	together.Spec.Resources = &v1.ResourceRequirements{
		Requests: together.Spec.Containers[0].Resources.Requests,
		Limits:   together.Spec.Containers[0].Resources.Limits,
	}
	for _, tc := range []struct {
		pod  *v1.Pod
		want int
	}{
		{whole("two", "2"), 2},
		{whole("milli", "2000m"), 2},
		{whole("part", "1500m"), 0},
		{loose.Spec(), 0},
		{together, 0},
	} {
		c := &tc.pod.Spec.Containers[0]
		if err := s.Allocate(tc.pod, c, numa.Hint{}); err != nil {
			t.Fatal(err)
		}
		set, own := s.CPUs(tc.pod.UID, c.Name)
		if own != (tc.want > 0) || own && set.Size() != tc.want || !own && !set.Equals(s.shared) {
			t.Errorf("%s: %v, own %t", tc.pod.Name, set, own)
		}
		given, err := s.Contribute(t.Context(), tc.pod, c)
		if err != nil || given.CPUs != set.String() {
			t.Errorf("%s is made with %q, %v", tc.pod.Name, given.CPUs, err)
		}
	}
	// CPU 0 is reserved: it is in the shared pool, except with strict-cpu-reservation.
	if got := s.shared.String(); got != "0,3-8,11-15" {
		t.Errorf("shared are %s", got)
	}
	strict := newStage(t, twoSockets, func(c *Config) { c.Options.Strict = true })
	if err := strict.place(whole("two", "2")); err != nil {
		t.Fatal(err)
	}
	if got := strict.shared.String(); got != "2-8,10-15" {
		t.Errorf("with strict-cpu-reservation shared are %s", got)
	}
}

func TestCPUsOfInitContainersAreReused(t *testing.T) {
	parity.Proves(t, "RES-27")
	s := newStage(t, twoSockets, nil)
	p := (&placement.Pod{
		Name:     "p",
		Sidecars: []placement.Container{{Name: "side", CPU: "1", Memory: "16Mi"}},
		Init: []placement.Container{{
			Name:   "big",
			CPU:    "6",
			Memory: "16Mi",
		}, {Name: "small", CPU: "2", Memory: "16Mi"}},
		Containers: []placement.Container{{Name: "a", CPU: "4", Memory: "16Mi"}, {Name: "b", CPU: "4", Memory: "16Mi"}},
	}).Spec()
	if err := s.place(p); err != nil {
		t.Fatal(err)
	}
	of := func(name string) cpuset.CPUSet { set, _ := s.assignedTo("p", name); return set }
	apps := of("a").Union(of("b"))
	switch {
	case !of("small").IsSubsetOf(of("big")):
		t.Errorf("the second init container has %v beside the first one's %v", of("small"), of("big"))
	case apps.Size() != 8 || !of("big").IsSubsetOf(apps):
		t.Errorf("the containers have %v, and %v lies idle", apps, of("big").Difference(apps))
	case of("side").Size() != 1 || !of("side").Intersection(apps.Union(of("big"))).IsEmpty():
		t.Errorf("the sidecar has %v, others of the pod %v", of("side"), apps.Union(of("big")))
	}
	other := whole("other", "6")
	if err := s.place(other); err != nil {
		t.Fatal(err)
	}
	if set, _ := s.assignedTo("other", "c0"); !set.Intersection(apps.Union(of("side"))).IsEmpty() {
		t.Errorf("another pod got %v of it", set)
	}
	s.Release("p")
	s.Release("other")
	s.holds()
}

func TestFullPCPUsOnly(t *testing.T) {
	parity.Proves(t, "RES-29")
	parity.Differs(t, "RES-33", "0103")
	s := newStage(t, twoSockets, func(c *Config) { c.Options.FullCores = true })
	for _, tc := range []struct {
		cpus, says string
	}{
		{"3", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"},
		{"16",
			"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 14, requested CPUs = 16, CPUs per " +
				"core = 2"},
		{"14", ""},
		{"2",
			"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 0, requested CPUs = 2, CPUs per " +
				"core = 2"},
	} {
		err := s.place(whole("p"+tc.cpus, tc.cpus))
		var no *pod.Rejection
		if tc.says == "" && err != nil ||
			tc.says != "" && (!errors.As(err, &no) || no.Reason != "SMTAlignmentError" || no.Message != tc.says) {
			t.Errorf("%s: %v", tc.cpus, err)
		}
	}
	if s.aligned["physical_cpu true"] != 1 || s.aligned["physical_cpu false"] != 3 {
		t.Errorf("counted %v", s.aligned)
	}
}

// If a pod has its CPUs already, Allocate does not check again whether enough whole cores are free. After a restart of
// the agent, a pod without containers is admitted once more.
func TestFullPCPUsOnlyAfterRestart(t *testing.T) {
	s := newStage(t, twoSockets, func(c *Config) { c.Options.FullCores = true })
	all := whole("all", "6", "8")
	if err := s.place(all); err != nil {
		t.Fatal(err)
	}
	has := fmt.Sprint(s.assigned)
	for range 2 {
		if err := s.place(all); err != nil {
			t.Errorf("judged once more: %v", err)
		}
		s.restart()
	}
	if now := fmt.Sprint(s.assigned); now != has || s.aligned["physical_cpu false"] != 0 {
		t.Errorf("it had %s and has %s; counted %v", has, now, s.aligned)
	}
}

// If the CPUs of the running containers are not known, a checkpoint that cannot be used is an error, as with upstream.
func TestCheckpointThatDoesNotMatch(t *testing.T) {
	parity.Differs(t, "RES-30", "0101")
	taken := func(t *testing.T) *stage {
		s := newStage(t, twoSockets, nil)
		if err := s.place(whole("p", "2")); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tc := range []struct {
		name string
		edit func(*stage)
		says string // "" starts
	}{
		{"unchanged", func(*stage) {}, ""},
		{"policy none", func(s *stage) { s.cfg.Policy = PolicyNone }, ""},
		{"another policy", func(s *stage) { s.rewrite(`static`, `none`); s.unsum() },
			`configured policy "static" differs from state checkpoint policy "none"`},
		{"a CPU of a container is reserved",
			func(s *stage) { s.cfg.ReservedCPUs = cpuset.New(0, 1) }, "not all reserved cpus"},
		{"strict reservation", func(s *stage) { s.cfg.Options.Strict = true },
			"some of strictly reserved cpus"},
		{"fewer CPUs", func(s *stage) { s.cfg.Machine.CPUs = s.cfg.Machine.CPUs[:15] },
			"doesn't match with CPUs in state"},
		{"more CPUs", func(s *stage) {
			s.cfg.Machine.CPUs = append(s.cfg.Machine.CPUs, machine.CPU{
				ID:   16,
				Core: 16,
			})
		}, "doesn't match with CPUs in state"},
		{"wrong checksum", func(s *stage) { s.rewrite(`"1,9"`, `"2,9"`) }, "the checksum is"},
		{"invalid JSON", func(s *stage) { s.rewrite(`{`, ``) }, "decode state"},
		{"one shared exclusive CPU", func(s *stage) { s.rewrite(`"0,2-`, `"0-`); s.unsum() }, "overlaps with default cpuset"},
		{"format without a checksum", func(s *stage) { s.unsum() }, ""},
		{"checkpoint was deleted", func(s *stage) {
			if err := os.Remove(s.path()); err != nil {
				s.t.Fatal(err)
			}
			s.cfg.Policy = PolicyNone
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := taken(t)
			tc.edit(s)
			_, err := New(s.cfg)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
}

// rewrite changes the state file.
func (s *stage) rewrite(from, to string) {
	s.t.Helper()
	b, err := os.ReadFile(s.path())
	if err == nil && !strings.Contains(string(b), from) {
		err = fmt.Errorf("no %s in %s", from, b)
	}
	if err == nil {
		err = os.WriteFile(s.path(), []byte(strings.Replace(string(b), from, to, 1)), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// unsum sets the checksum in the state file to 0, which means that there is none.
func (s *stage) unsum() {
	s.t.Helper()
	b, err := os.ReadFile(s.path())
	if err != nil {
		s.t.Fatal(err)
	}
	at := strings.Index(string(b), `"checksum":`)
	s.rewrite(string(b[at:]), `"checksum":0}`)
}

func TestRestoreFirstFormat(t *testing.T) {
	parity.Differs(t, "RES-30", "0101")
	s := newStage(t, twoSockets, nil)
	const old = `{"policyName":"static","defaultCpuSet":"0,3-8,11-15","entries":{"abc":"1,9","gone":"2,10"},"checksum":%d}`
	if err := os.WriteFile(s.path(), fmt.Appendf(nil, old, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cfg.FindContainer = func(id string) (types.UID, string, bool) { return "u", "main", id == "abc" }
	s.restart()
	set, own := s.CPUs("u", "main")
	if !own || set.String() != "1,9" || s.shared.String() != "0,2-8,10-15" || len(s.assigned) != 1 {
		t.Errorf("%v, shared %v, all %v", set, s.shared, s.assigned)
	}
	s.restart() // from the checkpoint that it has written in the current format
	if set, own := s.CPUs("u", "main"); !own || set.String() != "1,9" {
		t.Errorf("an agent later: %v", set)
	}
	if err := os.WriteFile(s.path(), fmt.Appendf(nil, old, 12345), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(s.cfg); err == nil || !strings.Contains(err.Error(), "could not restore state") {
		t.Errorf("with a wrong checksum: %v", err)
	}
}

func TestCheckpointOfPolicyNone(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-25")
	s := newStage(t, twoSockets, func(c *Config) { c.Policy = PolicyNone })
	got, err := os.ReadFile(filepath.Join(s.cfg.Dir, "cpu_manager_state"))
	const want = `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; upstream's is %s", got, err, want)
	}
	if set, own := s.CPUs("u", "main"); own || !set.IsEmpty() {
		t.Errorf("a container is kept to %v", set)
	}
}

func TestAllocateNeedsCheckpoint(t *testing.T) {
	s := newStage(t, twoSockets, nil)
	s.cfg.Dir = filepath.Join(s.cfg.Dir, "gone")
	s.Manager.cfg.Dir = s.cfg.Dir
	err := s.place(whole("p", "2"))
	if !errors.Is(err, fs.ErrNotExist) || len(s.assigned) != 0 || s.changes != 0 {
		t.Errorf("%v: %v has CPUs", err, s.assigned)
	}
	s.holds()
}

func TestMetrics(t *testing.T) {
	parity.Differs(t, "RES-33", "0103")
	s := newStage(t, twoSockets, func(c *Config) { c.Options.ByCache = true })
	if err := s.place(whole("a", "2", "3")); err != nil {
		t.Fatal(err)
	}
	if err := s.place(whole("b", "12")); err == nil {
		t.Fatal("twelve of ten were had")
	}
	got := scrape.Of(t, s.Manager)
	for name, want := range map[string]float64{
		"kubelet_cpu_manager_pinning_requests_total":           3,
		"kubelet_cpu_manager_pinning_errors_total":             1,
		"kubelet_cpu_manager_shared_pool_size_millicores":      10000,
		"kubelet_cpu_manager_exclusive_cpu_allocation_count":   5,
		"kubelet_cpu_manager_allocation_per_numa{numa_node=0}": 0,
		"kubelet_cpu_manager_allocation_per_numa{numa_node=1}": 5,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	if s.aligned["uncore_cache true"] != 2 {
		t.Errorf("aligned: %v", s.aligned)
	}
	s.Release("a")
	if got := scrape.Of(t, s.Manager); got["kubelet_cpu_manager_exclusive_cpu_allocation_count"] != 0 ||
		got["kubelet_cpu_manager_shared_pool_size_millicores"] != 15000 {
		t.Errorf("after it has ended: %v", got)
	}
}
