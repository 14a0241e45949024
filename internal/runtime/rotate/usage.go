package rotate

import (
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

var descUsed = prometheus.NewDesc(metricUsed, "Bytes on the disk that the logs of a container take up", []string{"uid", "namespace", "pod", "container"}, nil)

// Usage shows as metrics how much room logs take up. It looks at each scrape.
type Usage struct {
	root    string
	running func() []Log
}

// NewUsage makes a collector for the logs of running containers below root.
func NewUsage(root string, running func() []Log) *Usage { return &Usage{root, running} }

// Describe is part of a collector.
func (u *Usage) Describe(ch chan<- *prometheus.Desc) { ch <- descUsed }

// Collect adds up the files of each container. A log that cannot be looked at,
// because its container has just been removed, is left out.
func (u *Usage) Collect(ch chan<- prometheus.Metric) {
	type labels [4]string
	seen := map[labels]bool{}
	for _, log := range u.running() {
		l := labels{string(log.Pod.UID), log.Pod.Namespace, log.Pod.Name, log.Name}
		if seen[l] { // an instance on its way out beside a new one
			continue
		}
		seen[l] = true
		if n, err := used(u.root, log); err == nil {
			ch <- prometheus.MustNewConstMetric(descUsed, prometheus.GaugeValue, float64(n), l[:]...)
		}
	}
}

// used is the room that the files in a log's directory take up: those of all
// instances of the container.
func used(root string, log Log) (int64, error) {
	d, err := open(root, log)
	if err != nil {
		return 0, err
	}
	defer d.close()
	files, err := d.self.Readdir(-1)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, f := range files {
		n += allocated(f)
	}
	return n, nil
}

func allocated(f os.FileInfo) int64 {
	if st, ok := f.Sys().(*syscall.Stat_t); ok && f.Mode().IsRegular() {
		return st.Blocks * 512 // whatever the file system's own blocks are
	}
	return 0
}
