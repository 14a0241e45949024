// Package storage is the room of volumes. volume prepares and releases the volumes of pods, with
// one package below it per kind of volume; mount mounts file systems and accesses those that may
// hang, and selinux computes labels.
//
// It has no code of its own.
package storage
