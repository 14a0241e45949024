// Package reload applies changes of the configuration while the agent runs. [Reloader]
// owns the configuration that is in force; a SIGHUP makes it read the files again. The few
// fields that can change are listed in groups; every other change needs a restart, and is
// logged.
//
// InForce is safe for concurrent use. The other state belongs to the goroutine of Run.
//
// Only app imports it.
package reload
