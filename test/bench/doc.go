// Package bench compares the kubelet with upstream's kubelet and with the same
// runtime calls made by hand, and checks the results against the project's
// performance targets.
//
// It owns the figures with their bounds (figures.go), the means of measuring
// (podwatch.go: times of watch events; process.go: resource usage of a process;
// hand.go: runtime calls by hand; audit.go: requests to the API server) and
// the scenes that measure the figures:
//
//	start      F1          fake runtime: one pod after the other
//	burst      F4          fake runtime whose sandboxes take 130 ms: 100 pods at once
//	probe      F13         fake runtime: a server that is ready at once
//	many       F6 F10      fake runtime: 100 and 1,000 pods, exits, idling
//	mount      V1          fake runtime: arrival to last mount, with objects in the cache
//	tree       V2          fsGroup on a million files, compared with a plain walk
//	files      F14         fake runtime: ConfigMaps change under 110 pods; watches
//	single     F2 F5 F7 F9 containerd: one pod after the other
//	crowd      (F2)        containerd: 30 pods at once
//	full       F3 F8 F9    containerd: a full node
//	restart    F12         containerd: the kubelet restarts under probed pods
//	size       F15         the binary
//
// All contenders are measured in one run, in turns: a round of one kubelet, a
// round of the other, a round by hand, and again. The kubelet is a process of
// its own, as on a node; the fakes run in this one. Times of pods are those at
// which a watch event arrived here, so they include the latency of the watch.
// Verdicts are valid for this run on this machine. The report starts with the
// load average: figures from a loaded machine are not final.
package bench
