package desired

import "time"

const (
	// maxManifest is the size above which a manifest is refused.
	maxManifest = 10 << 20

	// settle is how long a file must be unchanged before it is read: a file that is written in
	// place may be incomplete. A file that is renamed into place keeps its modification time
	// and is usually read at once.
	settle = 100 * time.Millisecond

	// Back-off for a manifest path that cannot be watched.
	minWatchRetry = time.Second
	maxWatchRetry = 20 * time.Second
)

// Log messages about changes, one for each kind of change, as upstream has them.
const (
	changeAdd       = "SyncLoop ADD"
	changeUpdate    = "SyncLoop UPDATE"    // specification, labels, annotations
	changeDelete    = "SyncLoop DELETE"    // the API server requests its deletion
	changeRemove    = "SyncLoop REMOVE"    // its source no longer has it
	changeReconcile = "SyncLoop RECONCILE" // only the status stored at the API server
)
