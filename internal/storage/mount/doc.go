// Package mount is the agent's side of the kernel's mount table and of file
// systems that other people fill. It keeps no state about mounts: the kernel
// does, and is asked.
//
// Three dangers are met here, so that nobody above has to think of them.
//
// A call may never return: the server behind a network mount is gone, or a FUSE
// daemon sleeps. Everything that touches a user's file system is run by a
// [Guard], on a goroutine that can be left behind; how many are, and on what
// they hang, can be seen. A pod has a part of them only, so that its file systems
// do not use up those of all others.
//
// A path may change under way: a container renames a directory and puts a
// symlink in its place between check and use. [OpenBeneath] and [MkdirBeneath]
// resolve in the kernel, relative to an open directory, and give an open file
// to mount, so there is no such moment.
//
// A directory may have a mount below it: removing it would remove somebody
// else's data. [RemoveTree] never enters another mount.
//
// Lock order: Guard.mu is taken alone.
package mount
