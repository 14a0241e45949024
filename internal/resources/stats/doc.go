// Package stats tells what the node, its pods and their containers use: CPU,
// memory, disks, network, processes.
//
// It owns no background work. A reading is made when somebody asks, from the files
// of the control groups, of /proc and of the log directories, and is shared with
// whoever asks within the same moment; so the cost follows the scrapes. What the
// runtime alone knows, the size of writable layers, it is asked for at most once
// in a while, and only for the whole summary. Where pods have no control groups,
// or a gate asks for it, the runtime tells everything.
//
// A rate (nanocores) needs two readings. The earlier one is the last that is at
// least [window] old; before there is one, the rate is that since the start.
//
// It reads the specifications and the runtime's view of pods through Config.Pods,
// and volumes through Config.Volumes, which must not block: they are measured on
// the side, at Config.RefreshVolumes.
//
// Three shapes come of one reading: [Collector.Summary] (/stats/summary),
// [Collector.Resource] (/metrics/resource) and [Collector.Containers]
// (/metrics/cadvisor).
//
// Locks: Collector.mu is held while a reading is made; nothing that it calls
// comes back here.
package stats
