package container

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

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
