// Package deviceplugin is a device plugin that really works, for tests: it offers
// devices of one resource, tells of their health, and gives containers a device
// node, a mount, a variable and an annotation for those they are allocated.
//
// It registers like any plugin of the kind, at kubelet.sock in the directory where
// its own socket is, or lies among the sockets of all plugins and is found there. Tests read which calls it got, and
// have calls fail or hang.
package deviceplugin
