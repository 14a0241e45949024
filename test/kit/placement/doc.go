// Package placement describes scenes in which pods request exclusive CPUs and memory on
// simulated machines, which are given by their numbers of sockets, NUMA nodes, caches and
// threads. The assignments of upstream's agent in each scene are recorded
// (tools/placement), and those of this agent are compared with them.
package placement
