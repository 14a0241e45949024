package placement

import (
	"io/fs"
	"strings"
)

// On returns the files of a host, with those of the CPUs, NUMA nodes and huge pages replaced by
// the machine's.
func (m Machine) On(host fs.FS) fs.FS { return on{m.Files(), host} }

type on struct{ machine, host fs.FS }

func (o on) Open(name string) (fs.File, error) {
	for _, dir := range []string{"sys/devices/system/cpu", "sys/devices/system/node", "sys/kernel/mm/hugepages"} {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return o.machine.Open(name)
		}
	}
	return o.host.Open(name)
}
