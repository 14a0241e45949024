// Package gc removes images that no container needs, when they are old or when
// the file system that holds them is nearly full.
//
// It owns, per image, when it was first seen and when it was last seen in use.
// It reads the runtime's images, the file system that they are on, and from the
// outside what is in use. Pinned images are the runtime's own and stay.
//
// One goroutine does all passes; one that is asked for from the outside (see
// [Collector.DeleteUnused]) waits for the pass under way.
package gc
