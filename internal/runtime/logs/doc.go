// Package logs reads container logs in the CRI format and in Docker's json-file format, from the
// end or since a time, and follows them across rotations.
//
// It has no state; a reader lives as long as one call. Files below the pod log directory may be
// controlled by a container that has it as a volume. Paths are therefore never followed out of the
// directory, and only regular files are opened, without blocking. There is one exception: the
// symlinks of cri-dockerd to the files that Docker writes, <id>/<id>-json.log.
package logs
