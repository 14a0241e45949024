package rotate

import (
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

var descUsed = prometheus.NewDesc(metricUsed, "Disk usage in bytes of the logs of a container",
	[]string{"uid", "namespace", "pod", "container"}, nil)

// Usage is a metrics collector of the disk usage of logs. It reads the sizes at each scrape.
type Usage struct {
	root    string
	running func() []Log
}

// NewUsage makes a collector for the logs of running containers below root.
func NewUsage(root string, running func() []Log) *Usage { return &Usage{root, running} }

// Describe implements [prometheus.Collector].
func (u *Usage) Describe(ch chan<- *prometheus.Desc) { ch <- descUsed }

// Collect implements [prometheus.Collector]. A log that cannot be read, because its container was
// just removed, is omitted.
func (u *Usage) Collect(ch chan<- prometheus.Metric) {
	type labels [4]string
	seen := map[labels]bool{}
	for _, log := range u.running() {
		l := labels{string(log.Pod.UID), log.Pod.Namespace, log.Pod.Name, log.Name}
		if seen[l] { // a terminating instance beside a new one
			continue
		}
		seen[l] = true
		if n, err := used(u.root, log); err == nil {
			ch <- prometheus.MustNewConstMetric(descUsed, prometheus.GaugeValue, float64(n), l[:]...)
		}
	}
}

// used returns the disk usage of the files in a log's directory, which are those of all instances
// of the container.
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
		return st.Blocks * 512 // st_blocks counts units of 512 bytes
	}
	return 0
}
