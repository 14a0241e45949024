// Package bench measures the kubelet beside upstream's kubelet and beside the
// same runtime calls made by hand, and holds what it finds against the figures
// the project has promised.
//
// It owns the figures with their bounds (figures.go), the ways of measuring
// (podwatch.go: when a watch showed what; process.go: what a process used;
// hand.go: runtime calls by hand; audit.go: what the API server was asked) and
// the scenes, one file each, in which things are measured:
//
//	start      F1          fake runtime: one pod after the other
//	burst      F4          fake runtime whose sandboxes take 130 ms: 100 pods at once
//	probe      F13         fake runtime: a server that is ready at once
//	many       F6 F10      fake runtime: 100 and 1,000 pods, exits, idling
//	mount      V1          fake runtime: arrival to last mount, the objects being known
//	tree       V2          a group is given a million files, beside a plain walk
//	files      F14         fake runtime: ConfigMaps change under 110 pods; watches
//	single     F2 F5 F7 F9 containerd: one pod after the other
//	crowd      (F2)        containerd: 30 pods at once
//	full       F3 F8 F9    containerd: a full node
//	restart    F12         containerd: the kubelet restarts under probed pods
//	size       F15         the binary
//
// Everything that is compared is measured in one run, in turns: a round of one
// kubelet, a round of the other, a round by hand, and again. The kubelet is a
// process of its own, as on a node; the fakes run in this one. Times are those
// at which a watch's event arrived here, so the watch's own way is part of
// every figure. Verdicts are about this run on this machine: the report begins
// with the load, and a loaded machine is not a place for final figures.
package bench
