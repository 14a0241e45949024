// Package probe is the prober: it runs startup, liveness and readiness probes by exec,
// HTTP, TCP and gRPC. It owns the probe results.
//
// All probes of the node are in one schedule, a heap ordered by due time, with one timer
// for the earliest. A probe that is due runs on a goroutine that ends with it, so that
// thousands of probes cost a heap entry each and no goroutine. At most Config.Workers
// begin at a time. A run that takes long releases its worker and continues without one: a
// probe never has two runs, a run ends at the probe's timeout, and it does not delay
// others. The first readiness or startup probe is due when the container has started and
// its initial delay is over, without a wait for a period; a liveness probe, whose failure
// ends the container, waits one more period.
//
// States of one probe, forward only within one container instance:
//
//	gated     liveness and readiness, until the startup probe has succeeded
//	probing   due every period; a row of equal outcomes changes the result
//	settled   startup after success or failure, liveness after failure: the
//	          container is started, or is to be stopped
//
// Locks: Prober.mu guards everything; no call leaves the package under it.
package probe
