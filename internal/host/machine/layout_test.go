package machine

import (
	"testing"
	"testing/fstest"

	"keelson/test/kit/placement"
)

func TestReadLayout(t *testing.T) {
	m := placement.Machine{Sockets: 2, Nodes: 2, Caches: 2, Cores: 2, Threads: 2, Memory: 1024, HugePages: 3}
	l, err := ReadLayout(m.Files(), Info{})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.CPUs) != 32 || len(l.Nodes) != 4 {
		t.Fatalf("%d CPUs, %d nodes", len(l.CPUs), len(l.Nodes))
	}
	for id, want := range map[int]CPU{
		0:  {0, 0, 0, 0, 0},
		3:  {3, 3, 0, 0, 1},
		4:  {4, 4, 0, 1, 2},
		20: {20, 4, 0, 1, 2},
		31: {31, 15, 1, 3, 7},
	} {
		if l.CPUs[id] != want {
			t.Errorf("%+v, want %+v", l.CPUs[id], want)
		}
	}
	n := l.Nodes[3]
	if n.ID != 3 || n.Memory != 1<<30 || n.HugePages[2<<20] != 3 || len(n.Distances) != 4 || n.Distances[3] != 10 ||
		n.Distances[2] != 12 {
		t.Errorf("%+v", n)
	}
	// A cache that all CPUs of the NUMA node share is not used: Cache is the socket then.
	m.Caches = 1
	if l, err = ReadLayout(m.Files(), Info{}); err != nil || l.CPUs[15].Cache != 1 || l.CPUs[15].Node != 3 {
		t.Errorf("%+v, %v", l.CPUs[15], err)
	}
}

func TestReadLayoutWithoutTopology(t *testing.T) {
	l, err := ReadLayout(fstest.MapFS{}, Info{CPUs: 3, Memory: 5, HugePages: map[uint64]uint64{1: 2}})
	if err != nil || len(l.CPUs) != 3 || l.CPUs[2] != (CPU{
		ID:   2,
		Core: 2,
	}) || len(l.Nodes) != 1 || l.Nodes[0].Memory != 5 || l.Nodes[0].HugePages[1] != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestReadLayoutErrors(t *testing.T) {
	for _, file := range []string{
		"sys/devices/system/cpu/online", "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id", "sys/devices/system/node/node0/cpulist",
		"sys/devices/system/node/node0/distance",
	} {
		fsys := placement.Machine{Sockets: 1, Nodes: 1, Cores: 2, Threads: 1}.Files()
		fsys[file] = &fstest.MapFile{Data: []byte("x\n")}
		if l, err := ReadLayout(fsys, Info{}); err == nil {
			t.Errorf("%s: %+v", file, l)
		}
	}
}
