package stats

import "time"

const (
	// window is the least time over which a rate is measured.
	window = 10 * time.Second
	// shared is how long a reading answers others who ask.
	shared = time.Second
	// layersEvery is the time between two questions to the runtime about the size
	// of writable layers: it measures them no more often itself.
	layersEvery = 10 * time.Second

	// forgotten is how much later than the start of its sandbox or container a cgroup can have been made: the start time
	// of a sandbox is when the runtime began to make it. A later time of the kernel's is not that of the creation.
	forgotten = time.Minute

	// The network interface that stands for the whole.
	defaultInterface = "eth0"
)

// What reads the control groups goes by this name in kubelet_metrics_provider.
const (
	providerCgroups = "cadvisor"
	providerRuntime = "cri"
)
