package placement

import (
	"io/fs"
	"strings"
)

// On is a host whose processors and memory are the machine's; all else is the host's
// own.
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
