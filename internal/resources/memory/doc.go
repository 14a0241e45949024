// Package memory keeps containers of Guaranteed pods to the memory of NUMA nodes.
//
// [Book] owns how much of each node's memory, and of its huge pages, is promised to
// whom, and the state file that says so to an agent after this one. The kernel is told
// the nodes (cpuset.mems); the amounts are bookkeeping.
//
// A node serves requests of its own, or of one group of nodes, and not both: what is
// taken from a group could otherwise leave too little for what was promised from one
// node alone. Within one pod, what an ordinary init container had those after it get
// again, for it has ended by then.
//
// Locks: Book.mu guards the book and is held while the file is written.
package memory
