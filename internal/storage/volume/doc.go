// Package volume brings volumes to pods and takes them away again. It owns
// which volumes of which pod are ready, and everything below
// <root>/pods/<uid>/volumes and volume-subpaths; kinds of volumes (packages
// below this one) own what is inside.
//
//	           Want                    Release
//	unknown ────────► preparing ─► ready ────► releasing ─► released
//	                    │  ▲          │ ▲          │ ▲
//	                    ▼  │          ▼ │          ▼ │
//	                   back-off     refresh      back-off
//
// The [Manager] works on each volume by itself, so none waits for another; one
// volume has at most one goroutine, and none while there is nothing to do. An
// attempt ends with the volume ready, or with a time of the next attempt. A
// ready volume is refreshed when what it is made from changes: an object, the
// pod, or the age of a token. That goes by the clock, so once a minute it is looked
// whether the clock was set.
//
// Nothing is remembered across a restart: every [Kind] prepares and releases
// from whatever is on the disk, which may be the trace of a crash at any step
// or of another node agent. What a pod has is found by reading its directory.
//
// Calls that touch what containers can reach go through the [mount.Guard].
//
// Lock order: Manager.mu, then nothing; OnChange and events are called without
// it.
package volume
