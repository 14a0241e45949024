// Package panics recovers panics in the work for one pod, so that the other pods of the
// node are not affected.
//
// A goroutine that works for one pod, one volume or one call of a plugin runs its work
// through [Try], which turns a panic into an error. The error is handled as any other
// failure of that work: an event of the pod, a back-off, a retry. The stack goes to the
// log, and keelson_panics_total counts it by part of the agent. Timers are set with
// [After] and [Again].
//
// A panic anywhere else ends the agent. What the Go runtime cannot recover from, such as
// concurrent writes to a map, ends it, too.
package panics
