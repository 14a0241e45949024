package container

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// podDir is the pod's directory below the root directory.
func podDir(root string, uid types.UID) string {
	return filepath.Join(root, "pods", string(uid))
}

// hostsFile is the path on the host of the pod's /etc/hosts.
func hostsFile(root string, uid types.UID) string {
	return filepath.Join(podDir(root, uid), "etc-hosts")
}

// terminationLogs is the directory of a container's termination logs, one file per instance.
func terminationLogs(root string, uid types.UID, container string) string {
	return filepath.Join(podDir(root, uid), "containers", container)
}

// emptyDirPath is the directory of the emptyDir volume of that name.
func emptyDirPath(root string, uid types.UID, volume string) string {
	return filepath.Join(podDir(root, uid), "volumes", "kubernetes.io~empty-dir", volume)
}

// seccompRoot is the directory that Localhost seccomp profiles are relative to.
func seccompRoot(root string) string { return filepath.Join(root, "seccomp") }

// annotationAppArmor is the prefix of the AppArmor annotation, from before the security context had
// a field for it. The container's name follows.
const annotationAppArmor = "container.apparmor.security.beta.kubernetes.io/"

// Event reason about the node's DNS configuration. The reasons of pod events are in package pod.
const eventCheckResolvConf = "CheckLimitsForResolvConf"

// etcHosts is the path of the hosts file, in containers and on the host.
const etcHosts = "/etc/hosts"

// Checkpoints are named <root>/checkpoints/checkpoint-<pod>_<namespace>-<container>-<time>.tar.
const checkpointSuffix = ".tar"

func checkpointPrefix(podFullName, container string) string {
	return "checkpoint-" + podFullName + "-" + container + "-"
}

func checkpointDir(root string) string { return filepath.Join(root, "checkpoints") }
