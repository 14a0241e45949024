package image

import "time"

// Back-off of pulls, per pod and image.
const (
	BackoffInitial = 10 * time.Second
	BackoffMax     = 300 * time.Second
)

// Files with the node's credentials, in the order in which they are tried; the first readable one
// is used. See [NodeFiles].
const (
	configFile       = "config.json"
	legacyConfigFile = ".dockercfg"
)

// defaultTag is the tag of an image name without tag and digest.
const defaultTag = "latest"
