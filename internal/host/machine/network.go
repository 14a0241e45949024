package machine

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Traffic are the counters of a network interface.
type Traffic struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// internalInterfaces are prefixes of interfaces that are not external, or the host ends of pods' interfaces.
var internalInterfaces = []string{"lo", "veth", "docker", "nerdctl"}

// ReadTraffic reads the counters of the interfaces in the network namespace of a process; zero: this process. Loopback
// and the host ends of pods' interfaces are left out.
func ReadTraffic(pid int) ([]Traffic, error) {
	who := "self"
	if pid != 0 {
		who = strconv.Itoa(pid)
	}
	text, err := os.ReadFile("/proc/" + who + "/net/dev")
	if err != nil {
		return nil, fmt.Errorf("read network traffic: %w", err)
	}
	return parseTraffic(string(text)), nil
}

// parseTraffic parses /proc/net/dev: eight received and eight transmitted counters.
func parseTraffic(text string) []Traffic {
	var out []Traffic
	for line := range strings.Lines(text) {
		name, numbers, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		f := strings.Fields(numbers)
		if !ok || len(f) < 16 ||
			slices.ContainsFunc(internalInterfaces, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		n := func(i int) uint64 {
			v, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				return 0 // the kernel writes numbers
			}
			return v
		}
		out = append(out, Traffic{
			Name:      name,
			RxBytes:   n(0),
			RxPackets: n(1),
			RxErrors:  n(2),
			RxDropped: n(3),
			TxBytes:   n(8),
			TxPackets: n(9),
			TxErrors:  n(10),
			TxDropped: n(11),
		})
	}
	return out
}

// Topology is the number of parts of the processors.
type Topology struct{ Cores, Sockets, Books, Drawers int }

// ReadTopology reads the topology of the machine with the root fsys. Without information it has one core and one
// socket.
func ReadTopology(fsys fs.FS) Topology {
	type core struct{ socket, id string }
	cores, sockets, books, drawers := map[core]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	dirs, err := fs.Glob(fsys, "sys/devices/system/cpu/cpu[0-9]*")
	if err != nil {
		panic(err) // the pattern is well-formed
	}
	for _, dir := range dirs {
		at := func(file string) string { return first(fsys, dir+"/topology/"+file) }
		socket := at("physical_package_id")
		id := at("core_id")
		if socket == "" || id == "" {
			continue // offline
		}
		cores[core{socket, id}], sockets[socket] = true, true
		if b := at("book_id"); b != "" {
			books[b] = true
		}
		if d := at("drawer_id"); d != "" {
			drawers[d] = true
		}
	}
	return Topology{Cores: max(len(cores), 1), Sockets: max(len(sockets), 1), Books: len(books), Drawers: len(drawers)}
}
