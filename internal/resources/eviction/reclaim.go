package eviction

// reclaim is something that can be removed before a pod has to end.
type reclaim string

const (
	endedContainers reclaim = "ended containers"
	unusedImages    reclaim = "unused images"
)

// reclaims are what to remove, in order, so that a signal has enough left again.
// What is on another disk would not help.
func reclaims(s Signal, d Disks) []reclaim {
	both := []reclaim{endedContainers, unusedImages}
	switch s {
	case NodeFSAvailable, NodeFSInodesFree:
		switch {
		case d.Containers:
			return both[:1]
		case d.Images:
			return nil
		}
		return both
	case ContainerFSAvailable, ContainerFSInodesFree:
		if d.Containers {
			return both[:1]
		}
		return both
	case ImageFSAvailable, ImageFSInodesFree:
		if d.Containers {
			return both[1:]
		}
		return both
	}
	return nil
}
