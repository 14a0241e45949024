// Package local serves local volumes: PersistentVolumes on directories and disks of the node. A
// directory is bind mounted into the pod. A disk is formatted if it is empty and mounted once per
// node, or used as a block volume.
//
//	<root>/plugins/kubernetes.io/local-volume/mounts/<pv>                the disk, staged
//	<root>/plugins/kubernetes.io/local-volume/volumeDevices/<pv>         the device, mapped per pod
//	<root>/pods/<uid>/volumes/kubernetes.io~local-volume/<pv>            in the pod
//
// It has no state other than these directories and mounts.
package local
