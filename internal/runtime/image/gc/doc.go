// Package gc garbage-collects images: those that have been unused for too long, and unused ones
// while disk usage is above a threshold.
//
// It owns, per image, when it was first detected and when it was last used. It reads the runtime's
// images, the usage of their file system, and which images are in use. Pinned images are never
// removed.
//
// Passes never run concurrently; one requested by the eviction manager (see
// [Collector.DeleteUnused]) waits for the current one.
package gc
