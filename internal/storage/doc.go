// Package storage contains the packages for volumes. Package volume prepares and releases the
// volumes of pods, with one package below it per kind of volume. Package mount mounts file systems
// and accesses those that may hang. Package selinux computes labels.
//
// It has no code of its own.
package storage
