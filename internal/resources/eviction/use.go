package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Use is what a pod uses. A nil part could not be measured.
type Use struct {
	At         time.Time // when it was measured
	Memory     *uint64   // the working set, in bytes
	Processes  *uint64
	Containers []ContainerUse
	Volumes    map[string]VolumeUse // by the name that the pod calls them
	// Own is what the agent keeps on the disk for the pod.
	Own Space
}

// ContainerUse is what a running container of the pod uses.
type ContainerUse struct {
	Name   string
	Memory *uint64
	Logs   *Space
	Layer  *Space // what it has written into its root file system
}

// VolumeUse is what a volume holds.
type VolumeUse struct {
	Space
	// Local volumes take of the node's disk and go with the pod.
	Local bool
}

// Space is room on a file system.
type Space struct{ Bytes, Inodes uint64 }

func (s *Space) add(o Space) { s.Bytes, s.Inodes = s.Bytes+o.Bytes, s.Inodes+o.Inodes }

// place is a kind of thing that a pod keeps on some file system.
type place int

const (
	inLogs place = 1 << iota
	inLayers
	inVolumes
)

// places are what a pod keeps on the file system that a signal is about.
func (d Disks) places(s Signal) place {
	all := inLogs | inLayers | inVolumes
	switch s {
	case ImageFSAvailable, ImageFSInodesFree:
		switch {
		case d.Containers:
			return 0 // images alone
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

// space is what the pod keeps in these places, as far as it is known.
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

// requested is the pod's request of a resource. Overhead is added only if the pod requests the
// resource, as upstream.
func requested(p *v1.Pod, name v1.ResourceName) int64 {
	asked := resource.PodRequests(p, resource.PodResourcesOptions{ExcludeOverhead: true})[name]
	total := asked.Value()
	if overhead := p.Spec.Overhead[name]; total != 0 {
		total += overhead.Value()
	}
	return total
}
