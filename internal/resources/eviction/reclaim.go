package eviction

// reclaim is a node-level resource that is reclaimed before a pod is evicted.
type reclaim string

const (
	deadContainers reclaim = "dead containers"
	unusedImages   reclaim = "unused images"
)

// reclaims returns what to remove, in order, to free the resource of a signal. What is on another file system is left
// out.
func reclaims(s Signal, d Disks) []reclaim {
	both := []reclaim{deadContainers, unusedImages}
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
