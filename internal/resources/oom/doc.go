// Package oom reports processes, of pods or of the system itself, that the kernel
// killed because the whole machine ran out of memory.
//
// It reads the kernel's log from the moment it starts, and owns nothing. Containers
// that were killed at their own memory limit are reported by the runtime.
package oom
