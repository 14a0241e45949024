// Package device is the device manager: device plugins offer devices of the machine to pods (KEP-3573). It owns the
// devices of each resource, their health, and their allocation to containers.
//
// A plugin registers at the registration socket or through the plugin watcher. The Manager then connects to it and
// follows its list of devices.
//
//	(none) ──► connecting ──► serving ──► stopped ── 5 minutes ──► (gone)
//	               ▲            │  ▲         │
//	               └─ registers again ───────┘
//
// Devices of a stopped plugin are unhealthy: they are not allocated, and remain allocated to the containers that have
// them. The resource is removed from the node if the plugin does not register again.
//
// Devices are allocated in three steps. Only the first one blocks other pods:
//
//	Allocate     on admission: selects free devices
//	Confirm      calls GetPreferredAllocation and Allocate of the plugin; podsync calls it until it has succeeded
//	Contribute   when a container is created: returns the answer of the plugin
//
// The answers of the plugins are written to a checkpoint in upstream's format before a container starts, so that the
// next agent contributes the same. Devices without an answer are selected again.
//
// Each plugin has a goroutine that follows its list, and each pod one that calls plugins, so that a plugin that hangs
// blocks only the pods that request its devices. Lists are read as they arrive, and changes are announced once per
// second.
//
// Locks: Manager.writing is held while the checkpoint is written and taken before Manager.mu. Neither is held during a
// call to a plugin.
package device
