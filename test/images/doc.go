// Package images makes the container images the tests and examples run, from
// static Go programs of the project, without a registry: an image is a folder
// of files and a configuration, written as a docker-archive that any
// containerd imports.
//
// The same files give the same digest: owners and modes are kept, times are
// omitted.
package images
