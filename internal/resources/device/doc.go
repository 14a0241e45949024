// Package device has plugins offer devices of the machine to pods (KEP-3573). It
// owns which devices there are of each resource, how well they are, and which
// container has been given which.
//
// A plugin registers at a socket in a directory of its own kind, or where all
// plugins do; then the pool dials it and follows its list of devices.
//
//	(none) ──► connecting ──► serving ──► stopped ── 5 minutes ──► (gone)
//	               ▲            │  ▲         │
//	               └─ registers again ───────┘
//
// Devices of a plugin that has stopped are not well: nobody gets them, who has them
// keeps them. A resource of which the plugin does not come back is gone from the
// node.
//
// Devices come to a container in three steps, of which only the first is waited for
// by others:
//
//	Reserve      when the pod is admitted: which ones, out of what is free
//	Ready        the plugin is asked what it prefers, and to allocate; podsync
//	             asks until it is done, and is woken when it is
//	Contribution when the container starts: what the plugin answered
//
// What plugins answered is written to a file in upstream's form before a container
// starts with it, so an agent after this one gives its containers the same. What was
// reserved and not yet answered is reserved anew.
//
// Each plugin has a goroutine that follows its list, each pod one that asks for it,
// so that a plugin that hangs keeps nobody waiting but who wants its devices. What a
// plugin tells is taken as fast as it can be, and acted upon once a second.
//
// Locks: Pool.writing is held while the file is written and taken before Pool.mu;
// neither is held over a call to a plugin.
package device
