// Package suite makes the images that upstream's conformance suite uses, under their names and without a registry. It
// makes them from agnhost, CoreDNS and Debian's packages, which are unpacked and not installed.
//
// The small userland is busybox in its default configuration. Debian's shell would drop environment names such as
// data-1, which the suite sets and checks. Other shells have error messages that the suite does not expect.
package suite
