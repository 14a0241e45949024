package volume

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Directories below a pod's. The layout is upstream's, so that agents can be exchanged.
const (
	volumesDir  = "volumes"
	devicesDir  = "volumeDevices"
	subPathsDir = "volume-subpaths"

	podDirMode    = 0o750 // of the pod's directory and its subdirectories
	pluginDirMode = 0o755 // of a plugin's directory below volumes
)

// PodDir returns the directory of a pod.
func PodDir(root string, uid types.UID) string {
	return filepath.Join(root, "pods", string(uid))
}

// escape returns a plugin's name as a directory name.
func escape(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }
