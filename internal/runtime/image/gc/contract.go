package gc

import "time"

// period is the time between two passes.
const period = 5 * time.Minute

// Reasons of node events.
const (
	EventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	EventInvalidDiskCapacity = "InvalidDiskCapacity"
	EventImageGCFailed       = "ImageGCFailed"
)

// Values of the label reason of the metric.
const (
	reasonAge   = "age"
	reasonSpace = "space"
)
