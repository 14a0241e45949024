package images

// Names of the images that this package makes. The tags are not latest, so that the default pull policy is IfNotPresent
// and no image is pulled from a registry.
const (
	Pause        = "keelson.local/pause:1"
	PauseSandbox = "registry.k8s.io/pause:3.10.2" // the sandbox image of upstream's tools
	Demo         = "keelson.local/demo:1"
	Shell        = "keelson.local/shell:1"
)
