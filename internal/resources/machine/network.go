package machine

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Traffic is what one network interface has carried.
type Traffic struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// internalInterfaces are prefixes of interfaces that carry nothing to the outside,
// or the far end of what a pod counts itself.
var internalInterfaces = []string{"lo", "veth", "docker", "nerdctl"}

// ReadTraffic reads the interfaces that the process with that number sees; zero
// means this one. Loopback and the ends of pods' interfaces are left out.
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

// parseTraffic reads /proc/net/dev: eight numbers received, eight sent.
func parseTraffic(text string) []Traffic {
	var out []Traffic
	for line := range strings.Lines(text) {
		name, numbers, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		f := strings.Fields(numbers)
		if !ok || len(f) < 16 || slices.ContainsFunc(internalInterfaces, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		n := func(i int) uint64 {
			v, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				return 0 // the kernel writes numbers
			}
			return v
		}
		out = append(out, Traffic{Name: name, RxBytes: n(0), RxPackets: n(1), RxErrors: n(2), RxDropped: n(3),
			TxBytes: n(8), TxPackets: n(9), TxErrors: n(10), TxDropped: n(11)})
	}
	return out
}

// Topology counts the parts that the processors are made of.
type Topology struct{ Cores, Sockets, Books, Drawers int }

// ReadTopology reads where the processors of the machine whose root is fsys are.
// What the kernel does not tell counts as one core and one socket in all.
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
			continue // off line
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
