// Package uml runs a program in a User-Mode Linux guest: a Linux kernel that is
// an ordinary process of this machine, with a complete cgroup v2 tree of its
// own, whatever this machine has.
//
// The guest's root is this machine's / under a throw-away overlay, so the
// program, the checkout and the caches are where they are outside; what is
// written is lost, except in the folders that Config.Share names. Its temporary
// folder lies on a disk of its own, because container runtimes cannot stack
// their overlays on the root's. It has one CPU, and system calls take about a
// hundred times as long as outside: what can be built is built before.
//
// Run is the side of this machine. First is the guest's first process; the same
// program does both (tools/guest), and tells by its process number which it is.
// The job goes from one to the other as a file in the run's folder, and the exit
// status comes back as another.
//
// The guest is no boundary: root inside reads every file of this machine.
//
// Nothing outlives Run: guest and helpers are in a process namespace of their
// own that ends with Run's process, and the folder of a run that was killed is
// removed by the next.
package uml
