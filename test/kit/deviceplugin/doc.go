// Package deviceplugin is a working device plugin for tests. It offers devices of one
// resource and reports their health. For the devices that a container is allocated, it
// answers with device nodes, a mount, a variable and an annotation.
//
// It registers like any device plugin: at kubelet.sock in the directory where its own
// socket is, or by a socket in the directory that the plugin watcher reads. Tests read
// which calls it got, and make calls fail or hang.
package deviceplugin
