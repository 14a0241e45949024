package rotate

// Suffixes and formats of file names, which log collectors rely on.
const (
	stampFormat      = "20060102-150405"
	compressedSuffix = ".gz"
	unfinishedSuffix = ".tmp"

	metricUsed = "kubelet_container_log_filesystem_used_bytes"
)
