package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Use is the usage of a pod. Nil parts could not be measured.
type Use struct {
	At         time.Time // of the measurement
	Memory     *uint64   // the working set, in bytes
	Processes  *uint64
	Containers []ContainerUse
	Volumes    map[string]VolumeUse // by name in the pod
	// Own is the size of the agent's files for the pod.
	Own Space
}

// ContainerUse is the usage of a running container.
type ContainerUse struct {
	Name   string
	Memory *uint64
	Logs   *Space
	Layer  *Space // the writable layer
}

// VolumeUse is the usage of a volume.
type VolumeUse struct {
	Space
	// Local volumes are on the node's disk and removed with the pod.
	Local bool
}

// Space is usage of a file system.
type Space struct{ Bytes, Inodes uint64 }

func (s *Space) add(o Space) { s.Bytes, s.Inodes = s.Bytes+o.Bytes, s.Inodes+o.Inodes }

// place is a kind of storage of a pod.
type place int

const (
	inLogs place = 1 << iota
	inLayers
	inVolumes
)

// places returns the kinds of storage that are on the file system of a signal.
func (d Disks) places(s Signal) place {
	all := inLogs | inLayers | inVolumes
	switch s {
	case ImageFSAvailable, ImageFSInodesFree:
		switch {
		case d.Containers:
			return 0 // images only
		case d.Images:
			return inLayers
		}
	case ContainerFSAvailable, ContainerFSInodesFree:
		if d.Images && !d.Containers {
			return inLayers
		}
	case NodeFSAvailable, NodeFSInodesFree:
		if d.Images && !d.Containers {
			return all &^ inLayers
		}
	}
	return all
}

// space returns the known usage of the given kinds of storage.
func (u Use) space(p place) Space {
	var sum Space
	for _, c := range u.Containers {
		if c.Logs != nil && p&inLogs != 0 {
			sum.add(*c.Logs)
		}
		if c.Layer != nil && p&inLayers != 0 {
			sum.add(*c.Layer)
		}
	}
	for _, v := range u.Volumes {
		if v.Local && p&inVolumes != 0 {
			sum.add(v.Space)
		}
	}
	return sum
}

// requested returns the pod's request of a resource. Overhead is added only if the pod requests the resource, as
// upstream.
func requested(p *v1.Pod, name v1.ResourceName) int64 {
	asked := resource.PodRequests(p, resource.PodResourcesOptions{ExcludeOverhead: true})[name]
	total := asked.Value()
	if overhead := p.Spec.Overhead[name]; total != 0 {
		total += overhead.Value()
	}
	return total
}
