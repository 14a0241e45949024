// Package checkpoint is the format of the device manager's checkpoint, kubelet_internal_checkpoint, which is the same
// as upstream's.
//
// It is a package of its own because of its name: the checksum of the file is over names of types as they print, and
// upstream's are of a package checkpoint.
package checkpoint
