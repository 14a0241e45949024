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

	// forgotten is how much later than the runtime started it a group can have been made: a runtime tells of a sandbox
	// when it begins to make it. What the kernel says after that is not when it made the group.
	forgotten = time.Minute

	// The network interface that stands for the whole.
	defaultInterface = "eth0"
)

// What reads the control groups goes by this name in kubelet_metrics_provider.
const (
	providerCgroups = "cadvisor"
	providerRuntime = "cri"
)
