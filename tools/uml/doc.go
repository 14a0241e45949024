// Package uml runs a program in a User-Mode Linux guest: a Linux kernel that is an ordinary process of this machine,
// with a complete cgroup v2 tree of its own, independent of the cgroup version of this machine.
//
// The guest's root is this machine's / under a temporary overlay, so the program, the checkout and the caches have the
// same paths as outside. What is written is lost, except in the folders of Config.Share. The guest's temporary folder
// is on a disk of its own, because container runtimes cannot stack their overlays on the root's. The guest has one CPU,
// and system calls take about a hundred times as long as outside, so everything that can be built outside is built
// before.
//
// Run runs on this machine, First is the guest's first process. The same program does both (tools/guest): it is the
// first process if its process ID is 1. The job and the exit status are passed as files in the run's folder.
//
// The guest is not a security boundary: root in the guest can read every file of this machine.
//
// No process outlives Run: guest and helpers are in a PID namespace of their own that ends with Run's process. The
// folder of a run that was killed is removed by the next run.
package uml
