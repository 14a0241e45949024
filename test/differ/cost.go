package differ

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ticks is the number of clock ticks, the units of /proc/PID/stat, in a second.
const ticks = 100

// cost is the CPU time that this process and each of its children have used, in one line.
func (s *Stage) cost() string {
	var list []string
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err.Error()
	}
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		i := bytes.LastIndexByte(data, ')')
		f := strings.Fields(string(data[i+1:]))
		pid, parent := filepath.Base(filepath.Dir(file)), f[1]
		self := strconv.Itoa(os.Getpid())
		if pid != self && parent != self {
			continue
		}
		name := string(data[bytes.IndexByte(data, '(')+1 : i])
		switch pid {
		case strconv.Itoa(s.sides[0].kubelet.Pid()):
			name = "ours"
		case strconv.Itoa(s.sides[1].kubelet.Pid()):
			name = "theirs"
		}
		user, err := strconv.Atoi(f[11])
		system, err2 := strconv.Atoi(f[12])
		if err = errors.Join(err, err2); err != nil {
			return err.Error()
		}
		list = append(list, fmt.Sprintf("%s %d s", name, (user+system)/ticks))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
