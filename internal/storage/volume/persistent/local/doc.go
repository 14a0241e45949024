// Package local brings parts of the node's own file systems and disks to pods as
// persistent volumes. A directory is mounted into the pod as it is; a disk is
// mounted once for the node, with a file system made on it if it has nothing,
// or comes to the pod as a device.
//
//	<root>/plugins/kubernetes.io/local-volume/mounts/<pv>                the disk, once for the node
//	<root>/plugins/kubernetes.io/local-volume/volumeDevices/<pv>         the device, mapped by pod
//	<root>/pods/<uid>/volumes/kubernetes.io~local-volume/<pv>            in the pod
//
// It owns no state: the directories and what is mounted on them are all there is.
package local
