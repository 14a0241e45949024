package oom

// EventSystemOOM is the reason of the event about the node.
const EventSystemOOM = "SystemOOM"

const says = "System OOM encountered, victim process: %s, pid: %d"

// root is the cgroup of processes that are in none of their own. Of others their
// cgroup tells.
const root = "/"
