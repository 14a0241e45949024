// Package persistent brings volumes to pods that outlive them: those behind
// claims, and those of the same plugins that a pod names itself. It owns which of
// them are staged on this node, which pod holds which, and so what the node says
// it has in use. The packages below it are the plugins.
//
// A volume comes to a pod in two steps. It is staged once for the node (device
// mount, in upstream's words), and published to each pod (pod mount). A device is
// staged before its first pod and unstaged after its last one:
//
//	          hold (first pod)         released (last pod)
//	(unknown) ────────► in use ► staged ────────► ending ► (unknown)
//	                                ▲               │
//	                                └─── hold ◄─────┘
//
// A pod holds a device from before the first step until after the last one is
// undone. A device is said to be in use as long as somebody holds it or it may be
// staged; only then may the controller detach it.
//
// Nothing that matters is remembered in memory alone. Before a step has its first
// effect the plugin leaves a record on the disk, and takes it away after the step
// is undone: what the scan at the start finds is what may be there. A device that
// is found is staged again before it is used, which plugins answer at once if it
// is, and unstaged if no pod wants it. Directories are removed only as empty ones.
//
// A volume has one SELinux label on the node, or none. It is decided when the first
// pod holds it, stands in the records, and lasts until nobody holds it; a pod that
// wants another one is refused until then.
//
// The steps of one volume are taken one after the other, those of different
// volumes side by side; every step has a limit in time.
//
// Lock order: a device's turn, then Volumes.mu; nothing is called with mu held.
package persistent
