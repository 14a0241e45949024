// Package numa names sets of NUMA nodes ([Nodes]), and the hints by which the CPU manager, the memory manager and the
// device manager say on which sets a request can be met ([Hint]). The topology manager merges the hints.
package numa
