package csi

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PluginName is the plugin's name in paths, messages and the node's status.
const PluginName = "kubernetes.io/csi"

// callLimit bounds one call to a driver.
const callLimit = 2 * time.Minute

// dirMode is the mode of directories below the plugin's.
const dirMode = 0o750

// Names below the plugin's directory.
const (
	recordFile   = "vol_data.json"
	globalMount  = "globalmount"
	blockDir     = "volumeDevices"
	publishedDir = "mount" // in the volume's directory of a pod
)

// Keys of the volume context.
const (
	keyPodName        = "csi.storage.k8s.io/pod.name"
	keyPodNamespace   = "csi.storage.k8s.io/pod.namespace"
	keyPodUID         = "csi.storage.k8s.io/pod.uid"
	keyServiceAccount = "csi.storage.k8s.io/serviceAccount.name"
	keyEphemeral      = "csi.storage.k8s.io/ephemeral"
	keyTokens         = "csi.storage.k8s.io/serviceAccount.tokens"
)

// AnnotationNodeID is the annotation of the Node with the drivers' IDs of the node.
const AnnotationNodeID = "csi.volume.kubernetes.io/nodeid"

// annotationMigrated is the annotation of the CSINode with the in-tree plugins whose volumes CSI
// drivers serve.
const annotationMigrated = "storage.alpha.kubernetes.io/migrated-plugins"

// migrated are those plugins. The scheduler uses them to count volumes.
const migrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
	"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// uniqueName returns the volume's name in the node status.
func uniqueName(driver, handle string) string {
	return PluginName + "/" + driver + "^" + handle
}

// AttachmentName returns the name of the VolumeAttachment of a volume and a node.
func AttachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// inlineHandle returns the handle of an ephemeral inline volume.
func inlineHandle(uid types.UID, name string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+name)))
}

// splitName parses a name in the node status.
func splitName(id string) (source, error) {
	rest, ok := strings.CutPrefix(id, PluginName+"/")
	driver, handle, also := strings.Cut(rest, "^")
	if !ok || !also {
		return source{}, fmt.Errorf("read volume name %q: not one of %s", id, PluginName)
	}
	return source{driver: driver, handle: handle}, nil
}

// paths are the plugin's directories below the root directory.
type paths struct{ root string }

func (p paths) plugin() string { return filepath.Join(p.root, "plugins", PluginName) }

// device is the directory of a staged file system volume: its record, and globalmount.
func (p paths) device(driver, handle string) string {
	return filepath.Join(p.plugin(), driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
}

// block is the directory of a block volume.
func (p paths) block(name string) string { return filepath.Join(p.plugin(), blockDir, name) }

func (p paths) blockRecord(name string) string { return filepath.Join(p.block(name), "data") }
func (p paths) blockMap(name string) string    { return filepath.Join(p.block(name), "dev") }

func (p paths) blockStaging(name string) string {
	return filepath.Join(p.plugin(), blockDir, "staging", name)
}

func (p paths) blockPublish(name string, uid types.UID) string {
	return filepath.Join(p.plugin(), blockDir, "publish", name, string(uid))
}
