package oom

// EventSystemOOM is the reason of the event about the node.
const EventSystemOOM = "SystemOOM"

const says = "System OOM encountered, victim process: %s, pid: %d"
