// Package placement describes scenes in which pods ask for CPUs and memory of their
// own on machines that do not exist: so many sockets, nodes, caches and threads. What
// upstream's agent did in each of them is recorded (tools/placement), and ours
// is compared with that.
package placement
