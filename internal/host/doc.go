// Package host is the room of the machine under the agent: what the agent reads of it, what it sets, and what it
// leaves there.
//
// setup prepares directories, sysctls and the process, systemd notifies the service manager, and footprint returns
// memory. machine reads the
// hardware and addresses, cgroup keeps the cgroup tree, netfilter the iptables chains, oom reads OOM kills from the
// kernel log. logind speaks to the login manager, and shutdown terminates pods in order before the machine shuts down.
// plugin watches the directory where plugins register. checkpoint reads and writes the agent's state files.
// clock waits for time to pass.
//
// It holds no code of its own.
package host
