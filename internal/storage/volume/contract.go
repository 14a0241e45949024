package volume

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Directories below a pod's own. Another node agent must find what this one
// left there, and the other way round.
const (
	volumesDir  = "volumes"
	devicesDir  = "volumeDevices"
	subPathsDir = "volume-subpaths"

	podDirMode    = 0o750 // of the pod's directory and those right below
	pluginDirMode = 0o755 // of a plugin's directory in volumes
)

// PodDir is the directory of a pod.
func PodDir(root string, uid types.UID) string {
	return filepath.Join(root, "pods", string(uid))
}

// escape is a plugin's name as a directory.
func escape(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }
