package images

// Names of the images made here. Tags other than latest, so that the default
// pull policy is IfNotPresent and no registry is asked.
const (
	Pause        = "keelson.local/pause:1"
	PauseSandbox = "registry.k8s.io/pause:3.10.2" // what upstream's tools take as the sandbox image
	Demo         = "keelson.local/demo:1"
	Shell        = "keelson.local/shell:1"
)
