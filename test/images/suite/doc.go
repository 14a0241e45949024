// Package suite makes the images that upstream's conformance suite asks for by
// name, without a registry: from agnhost, CoreDNS and Debian's packages,
// unpacked and not installed.
//
// The small userland is busybox as its authors configure it: Debian's shell
// drops environment names such as data-1, which the suite sets and expects to
// see, and other shells word their messages differently from what it expects.
package suite
