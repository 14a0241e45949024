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

	// forgotten is the maximum delay from the start time of a sandbox or container to the creation of its cgroup: the
	// start time of a sandbox is when the runtime began to create it. If the kernel's time is later than that, the
	// kernel has lost the creation time.
	forgotten = time.Minute

	// The network interface that stands for the whole.
	defaultInterface = "eth0"
)

// What reads the control groups goes by this name in kubelet_metrics_provider.
const (
	providerCgroups = "cadvisor"
	providerRuntime = "cri"
)
