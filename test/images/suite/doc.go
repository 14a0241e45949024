// Package suite makes the images that upstream's conformance suite asks for by
// name, without a registry: from agnhost, CoreDNS and Debian's packages,
// unpacked and not installed.
//
// The small userland is Debian's busybox with bash as /bin/sh: busybox's own
// shell, as Debian builds it, drops environment names such as data-1, which
// the suite sets and expects to see; bash passes them on.
package suite
