// Package mount wraps the kernel's mount table and accesses to file systems whose content or server
// is not under the node's control. It keeps no state about mounts: it always reads the state of the
// kernel.
//
// It handles three hazards for its callers.
//
// A call may never return: the server of a network mount is gone, or a FUSE daemon is stopped.
// Every access to a volume's file system is run by a [Guard], on a goroutine that can be abandoned;
// the calls that have not returned can be listed. Their number is limited per pod, so that the file
// systems of one pod do not block those of others.
//
// A path may change between check and use: a container replaces a directory by a symlink.
// [OpenBeneath] and [MkdirBeneath] resolve in the kernel, relative to an open directory, and return
// an open file to mount, so there is no race.
//
// A directory may have a mount beneath it, and removing it would remove the data of another volume.
// [RemoveTree] never crosses a mount point.
//
// Lock order: Guard.mu is taken alone.
package mount
