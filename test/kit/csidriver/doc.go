// Package csidriver is a small working CSI driver for tests. Volumes are directories
// below one directory, and are published as bind mounts; block volumes are files behind
// loop devices. The driver's state is in the mount table and on the disk, so a driver that
// was killed and started again has the same state as before.
//
// It registers like any driver, through a socket in the registration directory.
// Tests read which calls it got, and make calls fail, hang, or take effect and
// then fail.
package csidriver
