package probe

// Names the outside depends on.
const (
	userAgentPrefix = "kube-probe/"

	kindLiveness  = "Liveness"
	kindReadiness = "Readiness"
	kindStartup   = "Startup"
)
