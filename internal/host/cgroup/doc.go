// Package cgroup manages the cgroups of pods:
//
//	<root>/kubepods                  all pods; node allocatable
//	├── pod<uid>                     Guaranteed
//	├── burstable/pod<uid>
//	└── besteffort/pod<uid>
//
// The runtime creates the cgroups of containers below those of their pods. With the systemd driver the tree consists of
// slices, which systemd creates on request.
//
// It owns these directories and the values in them, on cgroup v2 and on v1, where every controller may have a hierarchy
// of its own and some may be missing. A pod has a directory in every mounted hierarchy. If one is missing, the cgroup
// of the pod counts as gone.
//
// The values are computed by pure functions ([PodValues], [BurstableCPU]), and [Values] maps them to files. A Tree has
// no state of its own: the kernel has it. Calls for different pods may be concurrent. Calls for one pod, and those for
// the parent cgroups, must not be.
package cgroup
