// Package persistent prepares volumes that outlive pods: those of PersistentVolumeClaims, and
// inline volumes of the same plugins. It owns which of them are staged on this node and which pods
// hold them, and thus the node's volumesInUse. The packages below it are the plugins.
//
// A volume is prepared in two steps. It is staged once per node (MountDevice) and published to each
// pod (SetUp). A device is staged for its first pod and unstaged after its last one:
//
//	          hold (first pod)         released (last pod)
//	(unknown) ────────► in use ► staged ──────► unstaging ► (unknown)
//	                                ▲               │
//	                                └─── hold ◄─────┘
//
// Two facts make up these states: which pods hold it, [device.holders], and what is known of it on the
// machine, [device.staging].
//
// A pod holds a device from before the first step until the last step is undone. A device is in
// volumesInUse as long as a pod holds it or it may be staged; only then may the attach/detach
// controller detach it.
//
// All state can be reconstructed from the disk. Before a step has its first effect the plugin
// writes a record, which it removes when the step is undone. At startup the records are read: a
// device that is found is staged again before it is used, which plugins do without effect if it is
// staged, and unstaged if no pod wants it. Only empty directories are removed.
//
// A volume has at most one SELinux label on the node. It is decided when the first pod holds the
// volume, is part of the record, and applies until no pod holds it. A pod that needs another label
// is refused until then.
//
// Steps of one volume are sequential, those of different volumes concurrent. Every step has a
// timeout.
//
// Lock order: a device's turn, then Volumes.mu; nothing is called with mu held.
package persistent
