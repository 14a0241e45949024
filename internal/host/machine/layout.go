package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Layout is the topology of processors and memory.
type Layout struct {
	CPUs  []CPU  // online, ascending
	Nodes []Node // NUMA nodes, ascending; at least one
}

// CPU is a logical processor. CPUs with the same Core are threads of one core.
type CPU struct {
	ID     int
	Core   int // the lowest ID of its threads
	Socket int
	Node   int
	Cache  int // the last-level cache, if a NUMA node has several; otherwise the socket
}

// Node is a NUMA node.
type Node struct {
	ID        int
	Memory    uint64            // bytes
	HugePages map[uint64]uint64 // number of allocated pages, by page size in bytes
	// Distances to all nodes, in their order. Nil: not known.
	Distances []int
}

// ReadLayout reads the topology of the machine with the root fsys. Without any information it has one socket, one NUMA
// node, and one thread per core.
func ReadLayout(fsys fs.FS, of Info) (Layout, error) {
	var t Layout
	if err := t.readCPUs(fsys, of.CPUs); err != nil {
		return t, fmt.Errorf("read the layout of processors: %w", err)
	}
	if err := t.readNodes(fsys, of); err != nil {
		return t, fmt.Errorf("read the layout of memory: %w", err)
	}
	t.shareCaches(fsys)
	return t, nil
}

// OnlineCPUs returns the numbers of the online CPUs.
func (t Layout) OnlineCPUs() cpuset.CPUSet {
	var ids []int
	for _, c := range t.CPUs {
		ids = append(ids, c.ID)
	}
	return cpuset.New(ids...)
}

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

func (t *Layout) readCPUs(fsys fs.FS, count int) error {
	text := first(fsys, cpuDir+"/online")
	if text == "" {
		for id := range count {
			t.CPUs = append(t.CPUs, CPU{ID: id, Core: id})
		}
		return nil
	}
	online, err := cpuset.Parse(text)
	if err != nil {
		return fmt.Errorf("read %s/online: %w", cpuDir, err)
	}
	for _, id := range online.List() {
		c := CPU{ID: id, Core: id}
		dir := path.Join(cpuDir, "cpu"+strconv.Itoa(id), "topology")
		if list := first(fsys, dir+"/thread_siblings_list", dir+"/core_cpus_list"); list != "" {
			siblings, err := cpuset.Parse(list)
			if err != nil {
				return fmt.Errorf("read %s/thread_siblings_list: %w", dir, err)
			}
			if on := siblings.Intersection(online); !on.IsEmpty() {
				c.Core = on.List()[0]
			}
		}
		if text := first(fsys, dir+"/physical_package_id"); text != "" {
			if c.Socket, err = strconv.Atoi(text); err != nil {
				return fmt.Errorf("read %s/physical_package_id: %w", dir, err)
			}
			c.Socket = max(c.Socket, 0) // -1: not known
		}
		t.CPUs = append(t.CPUs, c)
	}
	return nil
}

func (t *Layout) readNodes(fsys fs.FS, of Info) error {
	entries, err := fs.ReadDir(fsys, nodeDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "node")
		id, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		n, err := readNode(fsys, id)
		if err != nil {
			return err
		}
		t.Nodes = append(t.Nodes, n)
		mine, err := cpuset.Parse(first(fsys, path.Join(nodeDir, e.Name(), "cpulist")))
		if err != nil {
			return fmt.Errorf("read %s/%s/cpulist: %w", nodeDir, e.Name(), err)
		}
		for i := range t.CPUs {
			if mine.Contains(t.CPUs[i].ID) {
				t.CPUs[i].Node = id
			}
		}
	}
	if len(t.Nodes) == 0 {
		t.Nodes = []Node{{Memory: of.Memory, HugePages: of.HugePages}}
	}
	slices.SortFunc(t.Nodes, func(a, b Node) int { return a.ID - b.ID })
	return nil
}

func readNode(fsys fs.FS, id int) (Node, error) {
	dir := path.Join(nodeDir, "node"+strconv.Itoa(id))
	n := Node{ID: id}
	for line := range strings.Lines(first(fsys, dir+"/meminfo")) {
		f := strings.Fields(line) // Node 0 MemTotal:       16384 kB
		if len(f) >= 4 && f[2] == "MemTotal:" {
			kb, err := strconv.ParseUint(f[3], 10, 54)
			if err != nil {
				return n, fmt.Errorf("read %s/meminfo: %w", dir, err)
			}
			n.Memory = kb << 10
		}
	}
	for _, f := range strings.Fields(first(fsys, dir+"/distance")) {
		d, err := strconv.Atoi(f)
		if err != nil {
			return n, fmt.Errorf("read %s/distance: %w", dir, err)
		}
		n.Distances = append(n.Distances, d)
	}
	var err error
	n.HugePages, err = hugePagesOf(fsys, dir+"/hugepages")
	return n, err
}

// shareCaches sets the last-level cache of processors that share it only with some of their NUMA node.
func (t *Layout) shareCaches(fsys fs.FS) {
	size := map[int]int{}
	for _, c := range t.CPUs {
		size[c.Node]++
	}
	for i := range t.CPUs {
		c := &t.CPUs[i]
		c.Cache = c.Socket
		dir := path.Join(cpuDir, "cpu"+strconv.Itoa(c.ID), "cache", "index3")
		shared, err := cpuset.Parse(first(fsys, dir+"/shared_cpu_list"))
		if err != nil || shared.IsEmpty() || shared.Size() >= size[c.Node] {
			continue
		}
		if id, err := strconv.Atoi(first(fsys, dir+"/id")); err == nil {
			c.Cache = id
		}
	}
}
