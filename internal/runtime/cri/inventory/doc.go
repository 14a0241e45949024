// Package inventory reads the running containers and their resources from the container runtime. The CPU manager,
// the memory manager, the device manager and the manager of user namespaces use it if their state file is lost.
//
// It has no state: each call reads from the runtime.
package inventory
