package config

// version is the release of the Kubernetes API this agent speaks, with the name
// of the agent as build metadata; clients compare it with the API server's. The
// build sets these three variables.
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

// Where the agent keeps its files unless flags say otherwise.
const (
	DefaultRootDir = "/var/lib/kubelet"
	DefaultCertDir = "/var/lib/kubelet/pki"
)
