// Package volume is the volume manager: it prepares and releases the volumes of pods. It owns the
// state of each pod's volumes, and everything below <root>/pods/<uid>/volumes and volume-subpaths;
// kinds of volumes (packages below this one) own the content.
//
//	           Want                    Release
//	unknown ────────► preparing ─► ready ────► releasing ─► released
//	                    │  ▲          │ ▲          │ ▲
//	                    ▼  │          ▼ │          ▼ │
//	                   back-off     refresh      back-off
//
// The [Manager] handles each volume separately, so none waits for another. A volume has at most one
// goroutine, and none while there is nothing to do. An attempt ends with the volume ready, or with
// the time of the next attempt. A ready volume is refreshed when its inputs change: an object, the
// pod, or a token that expires. Expiry goes by the wall clock, so once a minute it is checked
// whether the clock was set.
//
// No state is kept across restarts: every [Kind] prepares and releases from whatever is on the
// disk, which may have been left by a crash at any step or by another node agent. The volumes of a
// pod are found by reading its directory.
//
// Accesses to file systems that containers can control go through the [mount.Guard].
//
// Lock order: Manager.mu, then nothing; OnChange and events are called without it.
package volume
