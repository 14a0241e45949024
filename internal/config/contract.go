package config

// version is the Kubernetes release that this agent implements, with the name of the agent
// as build metadata; clients compare it with the API server's. The build sets these three
// variables.
var (
	version   = "v1.36.3+keelson"
	gitCommit = ""
	buildDate = "1970-01-01T00:00:00Z"
)

// Names of the configuration file format.
const (
	APIVersion = "kubelet.config.k8s.io/v1beta1"
	Kind       = "KubeletConfiguration"
)

// fieldPluginTimeout is the field of [Own.DevicePluginRegistrationTimeout].
const fieldPluginTimeout = "keelson.dev/devicePluginRegistrationTimeout"

// dropInSuffix is the extension of the files read from --config-dir.
const dropInSuffix = ".conf"

// The default directories of the agent.
const (
	DefaultRootDir = "/var/lib/kubelet"
	DefaultCertDir = "/var/lib/kubelet/pki"
)
