package rotate

// Names that collectors of logs know.
const (
	stampFormat      = "20060102-150405"
	compressedSuffix = ".gz"
	unfinishedSuffix = ".tmp"

	metricUsed = "kubelet_container_log_filesystem_used_bytes"
)
