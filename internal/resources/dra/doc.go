// Package dra is the DRA manager (dynamic resource allocation): it has drivers prepare the ResourceClaims of pods, and
// contributes the prepared devices to containers. It owns the registered drivers and the prepared claims.
//
// A claim goes through these states, which the checkpoint stores for the next agent:
//
//	(none) ──► recorded ──► prepared ──► (none)
//	             │ a driver is called         ▲ the last pod that used it has terminated,
//	             └────────────────────────────┘ and its drivers have unprepared it
//
// A claim is recorded before a driver is called for the first time, so that it is unprepared even after a crash of the
// agent. A prepared claim is not prepared again. A pod uses a claim from the time it is recorded for the pod until it
// is unprepared, or another pod still uses it.
//
// [Manager.Want] prepares the claims of a pod before its sandbox is created, and [Manager.Ready] reports when they are
// prepared. [Manager.Release] is called when nothing of the pod runs any more, and [Manager.Released] reports when its
// claims are unprepared. The pod is not shown as terminated before that. Each pod has a goroutine while there is work
// for it, and a claim is processed by one of them at a time. A driver that hangs blocks only the pods that use its
// claims. Failures are retried after a back-off, and when a driver connects. Without claims nothing is read, watched or
// done.
//
// [Drivers] tracks the connections to the drivers, and deletes the ResourceSlices of a driver that has been gone for a
// while. [Health] tracks the health of devices that drivers report.
//
// Locks: Manager.writing is held while the checkpoint is written and taken before Manager.mu. The turn of a claim is
// taken before both. Drivers.mu and Health.mu are taken alone. Only the turn is held during calls.
package dra
