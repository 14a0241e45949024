package gc

import "time"

// period is the time between passes.
const period = 5 * time.Minute

// Reasons of events about the node.
const (
	EventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	EventInvalidDiskCapacity = "InvalidDiskCapacity"
	EventImageGCFailed       = "ImageGCFailed"
)

// Why an image was removed, as the metric tells.
const (
	reasonAge   = "age"
	reasonSpace = "space"
)
