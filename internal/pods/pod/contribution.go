package pod

import v1 "k8s.io/api/core/v1"

// Mount is one mount of a container: a path of the host, or an image.
type Mount struct {
	Volume        string // the volume's name; empty for files the agent makes itself
	HostPath      string // empty for an image
	ContainerPath string
	ReadOnly      bool
	Propagation   v1.MountPropagationMode // empty means none
	// RecursiveReadOnly asks that mounts below this one be read-only too (KEP-3857).
	RecursiveReadOnly bool
	SELinuxRelabel    bool
	Image             string // image volumes: the runtime's reference of the pulled image
	ImageSubPath      string
}

// Device is a device node of the host for a container.
type Device struct {
	HostPath      string
	ContainerPath string
	Permissions   string // of "rwm"
}

// EnvVar is one environment variable, its value final.
type EnvVar struct{ Name, Value string }

// Contribution is what one preparer adds to a container: volumes add mounts,
// device plugins add devices, environment and annotations, and so on.
type Contribution struct {
	Mounts      []Mount
	Devices     []Device
	CDIDevices  []string
	Env         []EnvVar
	Annotations map[string]string
}
