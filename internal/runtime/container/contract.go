package container

import (
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// The layout of log files is what log collectors read, and a container must
// find its logs where the agent before this one put them.
//
//	<pod logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log
//	<container logs>/<name>_<namespace>_<container>-<id>.log -> the file above

// podLogDir is the directory of all logs of a pod.
func podLogDir(root string, r pod.Ref) string {
	return filepath.Join(root, r.Namespace+"_"+r.Name+"_"+string(r.UID))
}

// containerLogPath is where a container logs, relative to its pod's directory.
func containerLogPath(name string, attempt int) string {
	return filepath.Join(name, strconv.Itoa(attempt)+".log")
}

// maxFileName is the longest name that ext4 takes.
const maxFileName = 255

// legacyLogLink is the flat name under which older log collectors look for a
// container's log. A name that would be too long loses its end, which is part
// of the id.
func legacyLogLink(dir string, r pod.Ref, container, id string) string {
	const suffix = ".log"
	name := r.Name + "_" + r.Namespace + "_" + container + "-" + id
	if len(name) > maxFileName-len(suffix) {
		name = name[:maxFileName-len(suffix)]
	}
	return filepath.Join(dir, name+suffix)
}

// podDir is the pod's directory below the agent's root.
func podDir(root string, uid types.UID) string {
	return filepath.Join(root, "pods", string(uid))
}

// hostsFile is the pod's /etc/hosts as the host sees it.
func hostsFile(root string, uid types.UID) string {
	return filepath.Join(podDir(root, uid), "etc-hosts")
}

// terminationLogs is the directory of the files that instances of a container leave
// their last words in.
func terminationLogs(root string, uid types.UID, container string) string {
	return filepath.Join(podDir(root, uid), "containers", container)
}

// emptyDirPath is where the volume of that name lies if it is an emptyDir.
func emptyDirPath(root string, uid types.UID, volume string) string {
	return filepath.Join(podDir(root, uid), "volumes", "kubernetes.io~empty-dir", volume)
}

// seccompRoot is the directory that Localhost profiles are named in.
func seccompRoot(root string) string { return filepath.Join(root, "seccomp") }

// The annotation by which a pod asked for an AppArmor profile before the
// security context had a field for it; the container's name follows.
const annotationAppArmor = "container.apparmor.security.beta.kubernetes.io/"

// Event reasons of the node's own DNS configuration; those of pods are in
// package pod.
const eventCheckResolvConf = "CheckLimitsForResolvConf"

// etcHosts is where the hosts file is, in containers and on the host.
const etcHosts = "/etc/hosts"

// Checkpoints are <root>/checkpoints/checkpoint-<pod>_<namespace>-<container>-<time>.tar.
const checkpointSuffix = ".tar"

func checkpointPrefix(podFullName, container string) string {
	return "checkpoint-" + podFullName + "-" + container + "-"
}

func checkpointDir(root string) string { return filepath.Join(root, "checkpoints") }
