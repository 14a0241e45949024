// Package checkpoint reads and writes the small state files that agents on this
// node leave each other: whole or not at all, with the checksum that upstream's
// agent puts on its own and insists on.
//
// State is not synced to the disk: what it says can be found out again from the
// API server and the runtime, and no pod waits for a disk. [Put] syncs what cannot,
// keys and the records of what a driver was asked for. A file that cannot be
// used is put aside under another name, for whoever wants to know what it was.
package checkpoint
