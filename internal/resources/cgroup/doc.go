// Package cgroup keeps the pods' part of the control group tree:
//
//	<root>/kubepods                  all pods; what the node has to give
//	├── pod<uid>                     Guaranteed
//	├── burstable/pod<uid>
//	└── besteffort/pod<uid>
//
// Containers are the runtime's, below their pod. With the systemd driver the same
// tree is made of slices, which systemd creates on request.
//
// It owns these directories and the values in them, on cgroup v2 and on v1, where
// every controller may have a hierarchy of its own and some may be absent. A pod
// has its directory in every mounted hierarchy: an agent that finds one missing
// takes the pod's cgroup for gone.
//
// What the values are is decided by pure functions ([PodValues], [BurstableCPU]),
// which file says it by [Values]; the rest is writing. A Tree has no state of its
// own: what the kernel says is so. Calls for different pods may run at the same
// time; calls for one pod, and those for the parents, are the caller's to order.
package cgroup
