// Package guest holds tests of the whole agent on a machine whose control
// groups are those of version 2 and nothing else: a User-Mode Linux guest
// (package uml), with the built containerd, crun, and a small API server in the
// test's own process.
//
// The tests carry the build tag guest; `make guest` runs them. They run one
// after another, each with an agent of its own configuration on the one runtime.
// Where the machine is not the guest they skip.
//
// What the guest does not have is not tested here: cpuset and huge pages,
// pressure figures, more than one CPU.
package guest
