// Package host is the room of the machine: what the agent reads from it, what it configures, and the state files.
//
// setup prepares directories, sysctls and the process, systemd notifies the service manager, and footprint returns
// unused memory. machine reads the hardware and addresses, cgroup keeps the cgroup tree, netfilter the iptables
// chains, oom reads OOM kills from the kernel log. logind calls systemd-logind, and shutdown terminates pods in order
// before the machine shuts down. plugin watches the directory where plugins register. checkpoint reads and writes the
// agent's state files. clock has helpers for time.
//
// It holds no code of its own.
package host
