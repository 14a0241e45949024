// Package resources is the room of what containers compute with: how it is allocated, measured and reclaimed.
//
// cpu is the CPU manager, memory the memory manager, device the device manager; each says by numa where it could
// allocate, and topology, the topology manager, joins them. dra prepares ResourceClaims with DRA drivers. userns
// allocates ranges of user IDs. stats measures what pods and the node use, and eviction evicts pods when too little is
// left.
//
// It holds no code of its own.
package resources
