package stats

import "time"

const (
	// window is the minimum time between the samples of a rate.
	window = 10 * time.Second
	// readingTTL is how long a reading is reused.
	readingTTL = time.Second
	// layersTTL is how long the sizes of writable layers are reused: the runtime does not measure them more often.
	layersTTL = 10 * time.Second

	// maxCreateDelay is the maximum delay from the start time of a sandbox or container to the creation of its cgroup.
	// The start time of a sandbox is when the runtime began to create it. If the kernel's time is later than that, the
	// kernel has lost the creation time.
	maxCreateDelay = time.Minute

	// defaultInterface is the interface whose stats are those of the node or pod.
	defaultInterface = "eth0"
)

// Values of kubelet_metrics_provider. The one for cgroups is upstream's name.
const (
	providerCgroups = "cadvisor"
	providerRuntime = "cri"
)
