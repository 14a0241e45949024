// Package hostpath serves hostPath volumes: inline ones and PersistentVolumes.
//
// It has no state and nothing on the disk: the path itself is mounted into containers. A path with
// a type ending in OrCreate is created if it does not exist. Nothing is ever removed.
package hostpath
