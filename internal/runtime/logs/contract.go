package logs

import (
	"fmt"
	"path/filepath"

	"keelson/internal/pods/pod"
)

const (
	// DefaultPodLogsDir is where runtimes write logs unless configured otherwise.
	DefaultPodLogsDir = "/var/log/pods"
	// ContainerLogsDir holds symbolic links to the logs of containers, for log
	// collectors that look there.
	ContainerLogsDir = "/var/log/containers"
	// maxLinkName is what most file systems allow for a name.
	maxLinkName = 255
	linkSuffix  = "log"
)

// The layout of log files is what log collectors read, and a container must find
// its logs where the agent before this one put them.
//
//	<pod logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log
//	<container logs>/<name>_<namespace>_<container>-<id>.log -> the file above

// PodDir is the log directory of a pod.
func PodDir(root string, ref pod.Ref) string {
	return filepath.Join(root, ref.Namespace+"_"+ref.Name+"_"+string(ref.UID))
}

// ContainerDir is the log directory of a container.
func ContainerDir(root string, ref pod.Ref, container string) string {
	return filepath.Join(PodDir(root, ref), container)
}

// File is the log's path below the pod's log directory, as the runtime is told
// it: one file for each instance of the container.
func File(container string, attempt int) string {
	return filepath.Join(container, fmt.Sprintf("%d.log", attempt))
}

// LinkName is the name in [ContainerLogsDir] under which collectors find the
// log of a container. A long one loses the end of what stands before the suffix,
// as it always did, id and all.
func LinkName(ref pod.Ref, container, containerID string) string {
	name := ref.Name + "_" + ref.Namespace + "_" + container + "-" + containerID
	if len(name) > maxLinkName-len(linkSuffix)-1 {
		name = name[:maxLinkName-len(linkSuffix)-1]
	}
	return name + "." + linkSuffix
}
