// Package preflight checks the configuration against the host: files that it names,
// sockets, kubeconfigs, swap, cgroup versions, sysctls. [Check] finds all problems in one
// pass, and starts nothing.
//
// Only cmd and app import it.
package preflight
