package device

import (
	"io/fs"
	"time"

	"keelson/internal/host/checkpoint"
)

// DefaultDir is where device plugins look for the registration socket, independent of the agent's root directory.
const DefaultDir = "/var/lib/kubelet/device-plugins"

const (
	dirMode    fs.FileMode = 0o750
	socketName             = "kubelet.sock"
	stateFile              = "kubelet_internal_checkpoint"
	stateMode  fs.FileMode = 0o600

	// eventUnusable is the reason of the event about a checkpoint that was set aside.
	eventUnusable = checkpoint.EventUnusable

	// CheckName is the name of the health check.
	CheckName = "device-plugin"

	metricRegistrations = "kubelet_device_plugin_registration_total"
	metricAllocations   = "kubelet_device_plugin_alloc_duration_seconds"
	// invalidResource replaces the resource name of refused registrations in metrics, because there could be any
	// number of names.
	invalidResource = "invalid"
)

const (
	dialLimit     = 10 * time.Second
	preStartLimit = 30 * time.Second
	// endpointStopGracePeriod is how long a resource remains after its plugin has stopped.
	endpointStopGracePeriod = 5 * time.Minute
	// retryPeriod is the pause before another attempt to serve the registration socket.
	retryPeriod = 5 * time.Second
	// minFollow and maxFollow bound the back-off before the list of a plugin that caused a panic is read again.
	minFollow = time.Second
	maxFollow = time.Minute
	// minAnnouncePeriod is the minimum time between two announcements of changes that plugins report.
	minAnnouncePeriod = time.Second

	// maxResources and maxMessage bound the memory that plugins can take up, and listsPerSecond the messages that are
	// read from one plugin.
	maxResources   = 256
	maxMessage     = 16 << 20
	listsPerSecond = 500
	listsAtOnce    = 100
)
