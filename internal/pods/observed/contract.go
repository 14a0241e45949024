package observed

import "time"

// Threshold is how long ago the runtime may last have been listed before the
// node counts as not ready.
const Threshold = 3 * time.Minute

const (
	// PollPeriod is the time between lists without an event stream.
	PollPeriod = time.Second
	// DefaultAudit is the time between lists with one.
	DefaultAudit = time.Minute
)

// Limits of termination messages of one container.
const (
	maxMessage      = 4096
	maxMessageLog   = 2048
	maxMessageLines = 80
)
