// Package guest holds tests of the whole agent on a machine that has only
// cgroups of version 2: a User-Mode Linux guest (tools/uml), with the built
// containerd, crun, and a fake API server in the test's own process.
//
// The tests have the build tag guest; `make guest` runs them. They run one
// after another on one runtime, each with an agent of its own configuration.
// On a machine that is not the guest they skip.
//
// Features that the guest lacks are not tested here: cpuset and huge pages,
// pressure figures (PSI), more than one CPU.
package guest
