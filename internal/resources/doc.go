// Package resources is the room of what containers get of the node: CPUs, memory, devices, claims and user IDs are
// allocated, measured and reclaimed here.
//
// cpu is the CPU manager, memory the memory manager, device the device manager. With numa each of them reports on which
// NUMA nodes it could allocate, and topology, the topology manager, merges these hints. dra prepares ResourceClaims
// with DRA drivers. userns allocates ranges of user IDs. stats measures what pods and the node use, and eviction evicts
// pods when the node runs low on memory, disk or process IDs.
//
// It holds no code of its own.
package resources
