package device

import (
	"io/fs"
	"time"

	"keelson/internal/node/checkpoint"
)

// DefaultDir is where plugins look for the agent, whatever its root directory is:
// they know no other place.
const DefaultDir = "/var/lib/kubelet/device-plugins"

const (
	dirMode    fs.FileMode = 0o750
	socketName             = "kubelet.sock"
	stateFile              = "kubelet_internal_checkpoint"
	stateMode  fs.FileMode = 0o600

	// eventUnusable is the reason of the event about a file that was put aside.
	eventUnusable = checkpoint.EventUnusable

	// CheckName is the name of the health check.
	CheckName = "device-plugin"

	metricRegistrations = "kubelet_device_plugin_registration_total"
	metricAllocations   = "kubelet_device_plugin_alloc_duration_seconds"
	// unheardOf stands in metrics for the name of a resource that was refused: there
	// may be any number of those.
	unheardOf = "invalid"
)

const (
	dialLimit     = 10 * time.Second
	preStartLimit = 30 * time.Second
	// stopGrace is how long a resource stays whose plugin has gone.
	stopGrace = 5 * time.Minute
	// again is how long after a failure the socket is tried again.
	again = 5 * time.Second
	// minFollow and maxFollow bound the pause before the list of a plugin that caused a panic is read again.
	minFollow = time.Second
	maxFollow = time.Minute
	// pace is the least time between two reactions to what plugins tell.
	pace = time.Second

	// maxResources and maxMessage bound what plugins can make the agent keep, and
	// listsPerSecond what they can make it read.
	maxResources   = 256
	maxMessage     = 16 << 20
	listsPerSecond = 500
	listsAtOnce    = 100
)
