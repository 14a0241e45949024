// Package oom reports processes that the kernel killed because the machine ran out of memory.
//
// It reads the records that the kernel logs after the start of the agent, and owns nothing. OOM kills of containers at
// their own limit are reported by the runtime.
package oom
