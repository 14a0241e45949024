package probe

// Metric names and header values, which are upstream's.
const (
	userAgentPrefix = "kube-probe/"

	kindLiveness  = "Liveness"
	kindReadiness = "Readiness"
	kindStartup   = "Startup"

	metricTotal   = "prober_probe_total"
	metricSeconds = "prober_probe_duration_seconds"

	resultSuccessful = "successful"
	resultFailed     = "failed"
)

var results = []string{resultSuccessful, resultFailed}
