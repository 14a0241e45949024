// Package checkpoint is the format of the device manager's checkpoint, kubelet_internal_checkpoint, which is the same
// as upstream's.
//
// It is a package of its own because of its name: the checksum of the file covers the Go names of the types, including
// the name of their package, so these names have to be the same as upstream's.
package checkpoint
