// Package machine reads what the machine is: processors, memory, huge pages,
// identities, operating system, process limit, file systems, addresses.
//
// It owns no state. What can be read from files is read through an fs.FS whose
// root is the machine's, so a tree of fixtures is a machine too. A file that is
// not there is a fact about the machine (no DMI in a container host's guest, no
// cpu MHz line under some kernels), never a failure, except for the few without
// which no node can be described: processors and memory.
package machine
