// Package stats measures the usage of the node, its pods and their containers: CPU, memory, disks, network, processes.
//
// It has no background work. A reading is made on request, from cgroup files, /proc and log directories, and reused for
// requests within [readingTTL], so the cost follows the scrapes. The sizes of writable layers are known to the runtime
// only. They are queried for the whole summary only, at most once per [layersTTL]. If pods have no cgroups, or the gate
// PodAndContainerStatsFromCRI is enabled, all usage of pods is queried from the runtime.
//
// A rate (nanocores) needs two samples. The earlier one is the last that is at least [window] old. Before there is one,
// the rate is that since the start.
//
// It reads the specifications and the runtime's state of pods through Config.Pods, and volumes through Config.Volumes,
// which must not block. Volumes are measured by Config.RefreshVolumes.
//
// There are three outputs: [Collector.Summary] (/stats/summary), [Collector.Resource] (/metrics/resource) and
// [Collector.Containers] (/metrics/cadvisor).
//
// Locks: Collector.mu is held while a reading is made. Nothing that it calls uses the Collector.
package stats
