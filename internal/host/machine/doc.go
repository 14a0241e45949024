// Package machine reads facts about the machine: processors, memory, huge pages, identifiers, operating system, process
// limit, file systems, addresses.
//
// It has no state. Files are read through an fs.FS with the root of the machine, so that tests can use fixtures.
// Missing files are not an error (there may be no DMI in a virtual machine, and no MHz of CPUs), except for the number
// of processors and the memory size.
package machine
