// Package csidriver is a small CSI driver that really works, for tests: volumes
// are directories below one directory, and come to pods as bind mounts; block
// volumes are files behind loop devices. What it has done is in the mount table
// and on the disk, so a driver that was killed and started again knows as much as
// before.
//
// It registers like any driver, through a socket in the registration directory.
// Tests read which calls it got, and have calls fail, hang, or take effect and
// then fail.
package csidriver
