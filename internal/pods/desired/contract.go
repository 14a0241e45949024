package desired

import "time"

const (
	// maxManifest is the size above which a manifest is refused.
	maxManifest = 10 << 20

	// settle is how long a file must be left alone before it is read: whoever
	// writes it in place may be half way. A file that is renamed into place
	// keeps the time it was written, and is usually read at once.
	settle = 100 * time.Millisecond

	// A manifest path that cannot be watched is tried again after a while.
	minWatchRetry = time.Second
	maxWatchRetry = 20 * time.Second
)

// Words of the log lines about changes, one for each kind of change.
const (
	changeAdd       = "SyncLoop ADD"
	changeUpdate    = "SyncLoop UPDATE"    // specification, labels, annotations
	changeDelete    = "SyncLoop DELETE"    // the API server wants it gone
	changeRemove    = "SyncLoop REMOVE"    // its source has it no more
	changeReconcile = "SyncLoop RECONCILE" // only the status stored at the API server
)
