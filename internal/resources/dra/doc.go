// Package dra has drivers prepare the claims of pods (dynamic resource allocation),
// and gives containers what the drivers made of them. It owns which drivers there are,
// and which claims are prepared, for whom and as what.
//
// A claim goes through these states, of which the file tells the next agent:
//
//	(none) ──► noted ──► prepared ──► (none)
//	             │ a driver is asked      ▲ the last pod that used it has ended,
//	             └────────────────────────┘ and its drivers have taken it back
//
// It is noted before a driver is asked for the first time, so whatever becomes of the
// agent, somebody takes it back; what is prepared is not prepared again. A pod has a
// claim from when it is noted for it until it is taken back, or somebody else has it
// too.
//
// [Store.Want] has the claims of a pod prepared, before its sandbox; [Store.Ready]
// tells when they are. [Store.Release] is called when nothing of the pod runs any more,
// and [Store.Released] tells when all is taken back: before that the pod is not shown
// as ended. Each pod has a goroutine while there is something to do for it, and each
// claim is worked on by one of them at a time, so a driver that hangs keeps nobody
// waiting but pods that use its claims. What failed is tried again after a pause, and
// when a driver comes. Without claims nothing is read, watched, or done.
//
// [Drivers] follows whether drivers can be reached, and takes what a driver has offered
// to the cluster away when it has been gone for a while. [Health] keeps what drivers
// tell of their devices.
//
// Locks: Store.writing is held while the file is written and taken before Store.mu; a
// claim's turn is taken before both. Drivers.mu and Health.mu are taken alone. Only the
// turn is held over a call.
package dra
