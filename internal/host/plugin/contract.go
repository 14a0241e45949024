package plugin

import "time"

// Plugin types.
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
	// handlerLimit is the timeout of a handler, which calls the plugin and the API server with timeouts of their own.
	handlerLimit = 5 * time.Minute

	minRetry = 500 * time.Millisecond
	maxRetry = 2*time.Minute + 2*time.Second

	pollEvery = 10 * time.Second // without file system events

	// maxSockets bounds the number of sockets that are processed.
	maxSockets = 256
)
