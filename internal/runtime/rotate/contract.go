package rotate

import "time"

// Names that collectors of logs know.
const (
	stampFormat      = "20060102-150405"
	compressedSuffix = ".gz"
	unfinishedSuffix = ".tmp"
)

// rotatedName is what a live log is renamed to.
func rotatedName(live string, at time.Time) string { return live + "." + at.Format(stampFormat) }
