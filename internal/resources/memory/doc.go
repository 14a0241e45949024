// Package memory is the memory manager: it pins containers of Guaranteed pods to the memory of NUMA nodes.
//
// [Manager] owns how much memory and how many huge pages of each NUMA node are assigned to which container, and their
// checkpoint, which the next agent restores. The kernel enforces the nodes (cpuset.mems), not the amounts.
//
// A NUMA node serves either requests for itself only or requests for one group of nodes. Otherwise an allocation from a
// group could use memory that is assigned from a single node. Memory is reused within a pod only: the memory of an
// ordinary init container can be allocated to containers after it, because the init container has terminated by then.
//
// Locks: Manager.mu guards the state and is held while the checkpoint is written.
package memory
