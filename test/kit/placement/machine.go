package placement

import (
	"fmt"
	"path"
	"testing/fstest"

	"k8s.io/utils/cpuset"
)

// Machine is the hardware of a machine. Each number is a count per unit of the field above it.
type Machine struct {
	Sockets int
	Nodes   int // NUMA nodes of a socket; -n: n sockets make one node
	Caches  int // of a node; 0 is one
	Cores   int // of a cache
	Threads int
	// Adjacent numbers the threads of a core one after the other. Without it, the first threads
	// of all cores are numbered before the second ones.
	Adjacent bool `json:",omitempty"`
	Memory   int  `json:",omitempty"` // MiB of a node; 0 is 4096
	// HugePages is how many huge pages of 2 MiB each node has.
	HugePages int `json:",omitempty"`
}

// Files are the files of /sys and /proc that describe the machine, with paths from the root.
func (m Machine) Files() fstest.MapFS {
	out := fstest.MapFS{}
	put := func(file, format string, args ...any) {
		out[file] = &fstest.MapFile{Data: fmt.Appendf(nil, format+"\n", args...), Mode: 0o444}
	}
	nodes, perSocket, perNode := m.Sockets*m.Nodes, m.Nodes, 1
	if m.Nodes < 0 {
		nodes, perSocket, perNode = m.Sockets/-m.Nodes, 1, -m.Nodes
	}
	caches := max(m.Caches, 1)
	cores := m.Sockets * perSocket * caches * m.Cores
	all := cores * m.Threads
	const cpus, numa = "sys/devices/system/cpu", "sys/devices/system/node"
	put(cpus+"/online", "0-%d", all-1)
	put(cpus+"/possible", "0-%d", all-1)
	put(cpus+"/present", "0-%d", all-1)
	inNode, inCache, inSocket := map[int][]int{}, map[int][]int{}, map[int][]int{}
	core := 0
	type at struct{ socket, node, cache, core int }
	places := map[int]at{}
	for socket := range m.Sockets {
		for n := range perSocket {
			node := socket*perSocket + n
			if perNode > 1 {
				node = socket / perNode
			}
			for c := range caches {
				cache := (socket*perSocket+n)*caches + c
				for k := range m.Cores {
					for thread := range m.Threads {
						id := core + thread*cores
						if m.Adjacent {
							id = core*m.Threads + thread
						}
						places[id] = at{socket, node, cache, (n*caches+c)*m.Cores + k}
						inNode[node], inCache[cache], inSocket[socket] = append(inNode[node],
							id), append(inCache[cache], id), append(inSocket[socket], id)
					}
					core++
				}
			}
		}
	}
	cpuinfo := ""
	for id := range all {
		cpuinfo += fmt.Sprintf(
			"processor\t: %d\nvendor_id\t: GenuineIntel\ncpu MHz\t\t: 2600.000\nphysical id\t: %d\ncore id\t\t: %d\n\n",
			id, places[id].socket, places[id].core)
	}
	put("proc/cpuinfo", "%s", cpuinfo)
	list := func(ids []int) string { return cpuset.New(ids...).String() }
	for id, p := range places {
		dir := fmt.Sprintf("%s/cpu%d", cpus, id)
		var siblings []int
		for other, q := range places {
			if q.socket == p.socket && q.core == p.core {
				siblings = append(siblings, other)
			}
		}
		put(dir+"/topology/core_id", "%d", p.core)
		put(dir+"/topology/physical_package_id", "%d", p.socket)
		put(dir+"/topology/thread_siblings_list", "%s", list(siblings))
		put(dir+"/topology/core_cpus_list", "%s", list(siblings))
		put(dir+"/online", "1")
		cache := dir + "/cache/index3"
		put(cache+"/id", "%d", p.cache)
		put(cache+"/level", "3")
		put(cache+"/type", "Unified")
		put(cache+"/size", "16384K")
		put(cache+"/shared_cpu_list", "%s", list(inCache[p.cache]))
		put(cache+"/shared_cpu_map", "%s", bitmap(inCache[p.cache], all))
	}
	put(numa+"/online", "0-%d", nodes-1)
	put(numa+"/possible", "0-%d", nodes-1)
	put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "%d", nodes*m.HugePages)
	memory := m.Memory * 1024
	if memory == 0 {
		memory = 4096 * 1024
	}
	for node := range nodes {
		dir := fmt.Sprintf("%s/node%d", numa, node)
		put(dir+"/cpulist", "%s", list(inNode[node]))
		put(dir+"/meminfo", "Node %d MemTotal:       %d kB\nNode %d MemFree:        1024 kB", node, memory, node)
		put(dir+"/hugepages/hugepages-2048kB/nr_hugepages", "%d", m.HugePages)
		distances := ""
		for other := range nodes {
			d := 10
			switch {
			case other == node:
			case other/perSocket == node/perSocket:
				d = 12
			default:
				d = 20 + (other+node)%3
			}
			distances += fmt.Sprintf("%d ", d)
		}
		put(dir+"/distance", "%s", distances)
		for _, id := range inNode[node] {
			for _, file := range []string{"topology/core_id", "topology/physical_package_id",
				"topology/thread_siblings_list", "online",
				"cache/index3/id", "cache/index3/level", "cache/index3/type", "cache/index3/size",
				"cache/index3/shared_cpu_list", "cache/index3/shared_cpu_map"} {
				name := fmt.Sprintf("cpu%d/%s", id, file)
				out[path.Join(dir, name)] = out[path.Join(cpus, name)] // the kernel has links there
			}
		}
	}
	return out
}

// bitmap is a set of CPUs as the kernel writes one: words of 32, highest first.
func bitmap(ids []int, of int) string {
	words := make([]uint32, (of+31)/32)
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	out := ""
	for i := len(words) - 1; i >= 0; i-- {
		out += fmt.Sprintf("%08x", words[i])
		if i > 0 {
			out += ","
		}
	}
	return out
}
