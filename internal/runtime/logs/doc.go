// Package logs knows where container logs are and how to read them: the
// runtime interface's line format and Docker's json-file, from the end or since
// a time, and on through rotations while a container runs.
//
// It owns no state; a reader lives as long as one call. Everything below the
// pod log directory was written by a runtime for containers, and a container
// may have a volume there: a path is only followed inside the directory, a name
// that leads out of it is an error, and only regular files are read, without
// waiting for a writer. One kind of link is followed: that of cri-dockerd to the
// file that Docker writes for a container, <id>/<id>-json.log.
package logs
