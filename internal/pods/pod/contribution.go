package pod

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Mount is one mount of a container: a path of the host, or an image.
type Mount struct {
	Volume        string // the volume's name; empty for files that the agent creates
	HostPath      string // empty for an image
	ContainerPath string
	ReadOnly      bool
	Propagation   v1.MountPropagationMode // empty means none
	// RecursiveReadOnly makes mounts below this one read-only, too (KEP-3857).
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

// EnvVar is one environment variable with its expanded value.
type EnvVar struct{ Name, Value string }

// Contribution is what one preparer adds to a container's configuration: volumes add
// mounts; device plugins add devices, environment and annotations.
type Contribution struct {
	Mounts      []Mount
	Devices     []Device
	CDIDevices  []string
	Env         []EnvVar
	Annotations map[string]string
	// CPUs and Mems are the container's CPUs and NUMA nodes in the format of cpusets; empty
	// for any.
	CPUs, Mems string
}

// With merges two contributions. At most one of them sets CPUs, and at most one Mems.
func (c Contribution) With(o Contribution) Contribution {
	sum := Contribution{
		Mounts:     slices.Concat(c.Mounts, o.Mounts),
		Devices:    slices.Concat(c.Devices, o.Devices),
		CDIDevices: slices.Concat(c.CDIDevices, o.CDIDevices),
		Env:        slices.Concat(c.Env, o.Env),
		CPUs:       c.CPUs, Mems: c.Mems,
	}
	if len(c.Annotations)+len(o.Annotations) > 0 {
		sum.Annotations = make(map[string]string, len(c.Annotations)+len(o.Annotations))
		maps.Copy(sum.Annotations, c.Annotations)
		maps.Copy(sum.Annotations, o.Annotations)
	}
	if sum.CPUs == "" {
		sum.CPUs = o.CPUs
	}
	if sum.Mems == "" {
		sum.Mems = o.Mems
	}
	return sum
}
