package rotate

import "time"

// Names that collectors of logs know.
const (
	stampFormat      = "20060102-150405"
	compressedSuffix = ".gz"
	unfinishedSuffix = ".tmp"

	metricUsed = "kubelet_container_log_filesystem_used_bytes"
)

// rotatedName is what a live log is renamed to.
func rotatedName(live string, at time.Time) string { return live + "." + at.Format(stampFormat) }
