package device

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/numa"
	"keelson/test/kit/deviceplugin"
	"keelson/test/kit/parity"
)

// placed starts a plugin with devices on NUMA nodes: two on each of two nodes, one on both, and one without a node.
func (m *machine) placed() *deviceplugin.Plugin {
	m.t.Helper()
	p := deviceplugin.New(deviceplugin.Config{
		Dir:      m.dir,
		Socket:   "p.sock",
		Resource: gpu,
	}, "a0", "b0", "c1", "d1", "e01", "f")
	p.Place("a0", 0)
	p.Place("b0", 0)
	p.Place("c1", 1)
	p.Place("d1", 1)
	p.Place("e01", 0, 1)
	if err := p.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(p.Stop)
	m.register(p, gpu, 6)
	return p
}

// Hints returns the NUMA nodes on which devices could be allocated. Devices on the nodes of the hint are allocated
// first.
func TestHintsOfDevices(t *testing.T) {
	parity.Proves(t, "PLUG-25")
	parity.ProvesPart(t, 2, "RES-55")
	m := newMachine(t)
	m.placed()
	m.plugin(deviceplugin.Config{Resource: "example.com/nowhere", Socket: "n.sock"}, "x")
	hint := func(preferred bool, ids ...int) numa.Hint {
		return numa.Hint{Nodes: numa.NodesOf(ids...), Preferred: preferred}
	}
	hints := func(po *v1.Pod, want ...numa.Hint) {
		t.Helper()
		for i, all := range []numa.Hints{m.pool.Hints(po, &po.Spec.Containers[0]), m.pool.PodHints(po)} {
			got, says := all[gpu]
			if _, more := all["example.com/nowhere"]; more || !says {
				t.Errorf("hints %v", all)
			}
			slices.SortFunc(got, func(a, b numa.Hint) int { return int(a.Nodes) - int(b.Nodes) })
			if !slices.Equal(got, want) {
				t.Errorf("hints %v of %d, want %v", got, i, want)
			}
		}
	}
	main := wants("main", gpu, 3)
	main.Resources.Limits["example.com/nowhere"] = one()
	three := podOf("three", main)
	hints(three, hint(true, 0), hint(true, 1), hint(false, 0, 1))
	hints(podOf("four", wants("main", gpu, 4)), hint(true, 0, 1))
	hints(podOf("six", wants("main", gpu, 6))) // one of the devices has no node
	if err := m.pool.Allocate(three, &three.Spec.Containers[0], hint(true, 1)); err != nil {
		t.Fatal(err)
	}
	if got := m.ids(three, "main"); !slices.Equal(got, []string{"c1", "d1", "e01", "x"}) {
		t.Errorf("it has %v", got)
	}
	hints(three, hint(true, 1), hint(false, 0, 1)) // the nodes of its devices
	// Node 1 could satisfy the requests on an empty machine, but has no free devices now.
	hints(podOf("late", wants("main", gpu, 2)), hint(true, 0), hint(false, 0, 1))
	hints(podOf("later", wants("main", gpu, 3)))
	two := podOf("two", wants("main", gpu, 3))
	if err := m.pool.Allocate(two, &two.Spec.Containers[0], hint(true, 0)); err != nil {
		t.Fatal(err)
	}
	if got := m.ids(two, "main"); !slices.Equal(got, []string{"a0", "b0", "f"}) {
		t.Errorf("it has %v", got)
	}
	nodes := map[string][]int{}
	for _, po := range []*v1.Pod{two, three} {
		for _, h := range m.pool.Devices(po.UID, "main") {
			nodes[h.ID] = h.Nodes
		}
	}
	if want := map[string][]int{
		"a0":  {0},
		"b0":  {0},
		"c1":  {1},
		"d1":  {1},
		"e01": {0, 1},
		"f":   nil,
		"x":   nil,
	}; !maps.EqualFunc(nodes, want, slices.Equal) {
		t.Errorf("places %v, want %v", nodes, want)
	}
	// PodHints is for all containers of a pod; init containers run one after another.
	m.pool.Release("two")
	m.pool.Release("three")
	whole := podOf("whole", wants("a", gpu, 1), wants("b", gpu, 1))
	whole.Spec.InitContainers = []v1.Container{wants("i", gpu, 2), wants("j", gpu, 1)}
	if got := m.pool.PodHints(whole)[gpu]; !slices.Contains(got, hint(true, 0)) ||
		!slices.Contains(got, hint(true, 1)) {
		t.Errorf("hints of a pod: %v", got)
	}
	whole.Spec.InitContainers[0] = wants("i", gpu, 4)
	if got := m.pool.PodHints(whole)[gpu]; len(got) != 1 || got[0] != hint(true, 0, 1) {
		t.Errorf("hints of a pod: %v", got)
	}
}

// If the kernel does not know the NUMA node of a device, some plugins report the kernel's value for that, -1, as a
// node.
func TestDeviceWithoutNUMANode(t *testing.T) {
	m := newMachine(t)
	p := deviceplugin.New(deviceplugin.Config{Dir: m.dir, Socket: "p.sock", Resource: gpu}, "a", "b0")
	p.Place("a", -1)
	p.Place("b0", 0)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	m.register(p, gpu, 2)
	po := podOf("both", wants("main", gpu, 2))
	for _, hints := range []numa.Hints{m.pool.Hints(po, &po.Spec.Containers[0]), m.pool.PodHints(po)} {
		if got, says := hints[gpu]; !says || len(got) > 0 {
			t.Errorf("hints %v: no nodes have both", hints)
		}
	}
	if err := m.assign(po, numa.Hint{Nodes: numa.NodesOf(0), Preferred: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := m.ids(po, "main"); !slices.Equal(got, []string{"a", "b0"}) {
			t.Errorf("it has %v", got)
		}
		m.restart()
	}
}

// TestChooseDevices checks the order of selection: devices of the pod's init containers first, unless a sidecar has
// them; then devices on the preferred nodes; among equals those that the plugin prefers; never an unhealthy device.
func TestChooseDevices(t *testing.T) {
	parity.Proves(t, "RES-48")
	parity.ProvesPart(t, 3, "RES-46")
	t.Run("of init containers", testDevicesOfInitContainers)
	t.Run("preferred", testPreference)
	t.Run("in this order", testChoice)
}

// testChoice checks properties of choose for random devices.
func testChoice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		in := choice{
			free:  map[string]Device{},
			reuse: map[string]Device{},
			near:  numa.Nodes(r.IntN(4)),
			count: r.IntN(6),
		}
		ids := []string{}
		for i := range r.IntN(10) {
			id := fmt.Sprintf("d%d", i)
			d := Device{Healthy: true}
			for n := range 2 {
				if r.IntN(2) == 0 {
					d.Nodes = append(d.Nodes, n)
				}
			}
			ids = append(ids, id)
			if r.IntN(4) == 0 {
				in.reuse[id] = d
			} else {
				in.free[id] = d
			}
		}
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		in.preferred = append(ids[:r.IntN(len(ids)+1)], "unknown")
		got := choose(in)
		if want := min(in.count, len(in.free)+len(in.reuse)); len(got) != want ||
			len(slices.Compact(slices.Clone(got))) != want {
			t.Fatalf("%+v: chose %v, want %d of them", in, got, want)
		}
		// No device that was left is better than one that was selected.
		grade := func(id string) int {
			if _, ok := in.reuse[id]; ok {
				return 0
			}
			like := 1
			if slices.Contains(in.preferred, id) {
				like = 0
			}
			return 10 + 10*int(in.site(in.free[id])) + like
		}
		for id := range merge2(in.free, in.reuse) {
			if slices.Contains(got, id) {
				continue
			}
			for _, taken := range got {
				if grade(taken) > grade(id) {
					t.Fatalf("%+v: took %s and left %s", in, taken, id)
				}
			}
		}
		available, must := candidates(in)
		if liked := in.preferred; len(available) < len(got) || len(must) > in.count {
			t.Fatalf("%+v: %v and %v to choose from, liked %v", in, available, must, liked)
		}
		for _, id := range got {
			if !slices.Contains(available, id) && len(must) < in.count {
				if _, again := in.reuse[id]; !again {
					t.Fatalf("%+v: chose %s, of which the plugin was not asked: %v", in, id, available)
				}
			}
		}
	}
}

func merge2(a, b map[string]Device) map[string]Device {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// TestAllocatedDevicesAreDisjoint admits and releases random pods, with a plugin that has preferences, devices that
// become unhealthy, and restarts of the agent. A device is never allocated to two pods, or to two containers that run
// at the same time.
func TestAllocatedDevicesAreDisjoint(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(3, 4))
	all := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	p := m.plugin(deviceplugin.Config{
		Resource: gpu,
		Prefer: func(available, must []string, n int) []string {
			for _, id := range must {
				if !slices.Contains(available, id) {
					t.Errorf("must have %s, which is not among %v", id, available)
				}
			}
			slices.Reverse(available)
			return available[:n]
		},
	}, all...)
	for i, id := range all {
		p.Place(id, int64(i%2))
	}
	always := v1.ContainerRestartPolicyAlways
	pods := map[types.UID]*v1.Pod{}
	admitted := 0
	for step := range 400 {
		switch r.IntN(10) {
		case 0, 1, 2:
			for uid := range pods {
				m.pool.Release(uid)
				delete(pods, uid)
				break
			}
		case 3:
			id := all[r.IntN(len(all))]
			p.Set([]string{deviceapi.Healthy, deviceapi.Unhealthy}[r.IntN(2)], id)
		case 4:
			if step%10 == 0 {
				m.restart()
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				if err := p.Register(t.Context()); err != nil {
					t.Fatal(err)
				}
				m.until("its devices", func() bool { there, _, _ := m.pool.Capacity(); return there[gpu] == len(all) })
			}
		default:
			po := podOf(fmt.Sprint("pod", step), wants("main", gpu, int64(r.IntN(3))),
				wants("more", gpu, int64(r.IntN(2))))
			for i := range r.IntN(3) {
				c := wants(fmt.Sprint("init", i), gpu, int64(r.IntN(3)))
				if r.IntN(3) == 0 {
					c.RestartPolicy = &always
				}
				po.Spec.InitContainers = append(po.Spec.InitContainers, c)
			}
			if err := m.assign(po, numa.Hint{Nodes: numa.Nodes(r.IntN(4))}); err != nil {
				m.pool.Release(po.UID)
				continue
			}
			pods[po.UID] = po
			admitted++
		}
		owner := map[string]string{}
		for uid, po := range pods {
			for kind, c := range pod.Containers(po) {
				have := m.ids(po, c.Name)
				if want := c.Resources.Limits[gpu]; len(have) != int(want.Value()) {
					t.Fatalf("step %d: %s of %s has %v, asked for %v", step, c.Name, uid, have, want.Value())
				}
				for _, id := range have {
					by := string(uid)
					if kind != pod.Init {
						by += "/" + c.Name
					}
					if before, taken := owner[id]; taken && before != by && before != string(uid) {
						t.Fatalf("step %d: %s is %s's and %s's", step, id, before, by)
					}
					owner[id] = by
				}
			}
		}
	}
	t.Logf("%d pods were admitted", admitted)
	if admitted < 50 {
		t.Errorf("only %d pods were admitted", admitted)
	}
	for uid := range pods {
		m.pool.Release(uid)
	}
	p.Set(deviceapi.Healthy, all...)
	m.amount(gpu, len(all), len(all))
	if free := m.free(gpu); len(free) != len(all) {
		t.Errorf("after all, %v are free", free)
	}
}
