package image

import "time"

// Back-off of pulls, per pod and image.
const (
	BackoffInitial = 10 * time.Second
	BackoffMax     = 300 * time.Second
)

// Files with credentials of the node, looked for in this order; the first that
// can be read is used. See [NodeFiles].
const (
	configFile       = "config.json"
	legacyConfigFile = ".dockercfg"
)

// defaultTag is what an image name without tag and digest stands for.
const defaultTag = "latest"
