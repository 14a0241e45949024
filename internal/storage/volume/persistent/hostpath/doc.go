// Package hostpath serves paths of the node as volumes: those that a pod names
// itself, and PersistentVolumes with a hostPath source.
//
// It keeps no state and has nothing on the disk: the path itself is mounted into
// containers. A path whose type ends in OrCreate is created if it is missing;
// nothing is ever removed.
package hostpath
