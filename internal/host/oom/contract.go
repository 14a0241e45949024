package oom

// EventSystemOOM is the reason of the event about the node.
const EventSystemOOM = "SystemOOM"

const messageSystemOOM = "System OOM encountered, victim process: %s, pid: %d"
