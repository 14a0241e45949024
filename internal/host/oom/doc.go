// Package oom reports processes that the kernel killed because the machine ran out of memory.
//
// It reads the kernel log from its start on, and owns nothing. OOM kills of containers at their own limit are reported
// by the runtime.
package oom
