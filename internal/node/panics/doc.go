// Package panics contains panics in work that belongs to one pod, so that the other pods
// of the node do not pay for it.
//
// A goroutine that works for one pod, one volume or one call of a plugin runs its work
// through [Try], which turns a panic into an error. The error takes the way of any other
// failure of that work: an event of the pod, a back-off, another try. The stack goes to
// the log, and keelson_panics_total counts it by part of the agent. Timers are set with
// [After] and [Again].
//
// A panic anywhere else ends the agent. What the Go runtime cannot recover from, such as
// concurrent writes to a map, ends it, too.
package panics
