package logs

import (
	"fmt"
	"path/filepath"

	"keelson/internal/pods/pod"
)

const (
	// DefaultPodLogsDir is the default root of container logs.
	DefaultPodLogsDir = "/var/log/pods"
	// ContainerLogsDir contains symlinks to container logs, for log collectors.
	ContainerLogsDir = "/var/log/containers"
	// maxLinkName is the maximum length of a file name on most file systems.
	maxLinkName = 255
	linkSuffix  = "log"
)

// Log collectors depend on the layout of log files, and it must not change between versions of the
// agent.
//
//	<pod logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log
//	<container logs>/<name>_<namespace>_<container>-<id>.log -> the file above

// PodDir returns the log directory of a pod.
func PodDir(root string, ref pod.Ref) string {
	return filepath.Join(root, ref.Namespace+"_"+ref.Name+"_"+string(ref.UID))
}

// ContainerDir returns the log directory of a container.
func ContainerDir(root string, ref pod.Ref, container string) string {
	return filepath.Join(PodDir(root, ref), container)
}

// File returns the log's path relative to the pod's log directory, as the CRI has it. Each instance
// of a container has its own file.
func File(container string, attempt int) string {
	return filepath.Join(container, fmt.Sprintf("%d.log", attempt))
}

// LinkName returns the name of the symlink in [ContainerLogsDir]. A name that is too long is
// truncated before the suffix, which cuts off the container ID.
func LinkName(ref pod.Ref, container, containerID string) string {
	name := ref.Name + "_" + ref.Namespace + "_" + container + "-" + containerID
	if len(name) > maxLinkName-len(linkSuffix)-1 {
		name = name[:maxLinkName-len(linkSuffix)-1]
	}
	return name + "." + linkSuffix
}
