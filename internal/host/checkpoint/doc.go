// Package checkpoint reads and writes small checkpoint files, atomically and with upstream's checksum.
//
// Checkpoints are not synced to the disk, because their content can be restored from the API server and the runtime,
// and pods should not wait for a disk. [Put] syncs files for which that is not so: keys and records of calls to
// drivers. A file that cannot be used is renamed and kept.
package checkpoint
