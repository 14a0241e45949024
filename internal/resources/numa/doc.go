// Package numa has sets of NUMA nodes ([Nodes]) and topology hints ([Hint]): the CPU manager, the memory manager and
// the device manager report with hints which sets of nodes can satisfy a request. The topology manager merges the
// hints.
package numa
