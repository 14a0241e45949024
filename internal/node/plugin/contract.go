package plugin

import "time"

// Types of plugins, as they call themselves.
const (
	CSI    = "CSIPlugin"
	Device = "DevicePlugin"
	DRA    = "DRAPlugin"
)

const (
	dirMode = 0o750

	dialLimit   = 10 * time.Second
	infoLimit   = time.Second
	notifyLimit = 5 * time.Second
	// handlerLimit is how long a handler may take. It asks the plugin and the API
	// server, each with a limit of its own.
	handlerLimit = 5 * time.Minute

	minRetry = 500 * time.Millisecond
	maxRetry = 2*time.Minute + 2*time.Second

	pollEvery = 10 * time.Second // where the file system tells nothing

	// maxSockets bounds what a directory full of sockets can make the agent do.
	maxSockets = 256
)
