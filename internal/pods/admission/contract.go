package admission

// Reasons of a rejection, as in status.reason and the metric
// admission_rejections_total. A lack of resource R is OutOfR.
const (
	ReasonSysctl             = "SysctlForbidden"
	ReasonNodeInfo           = "InvalidNodeInfo"
	ReasonOSLabel            = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOSField            = "PodOSNotSupported"
	ReasonSupplementalGroups = "SupplementalGroupsPolicyNotSupported"
	ReasonNodeName           = "NodeName"
	ReasonNodeAffinity       = "NodeAffinity"
	ReasonNodePorts          = "NodePorts"
	ReasonTaint              = "TaintToleration"
	ReasonPodResources       = "PodLevelResourcesNotSupported"
	ReasonFeature            = "PodFeatureUnsupported"
	ReasonEvicted            = "Evicted"
	ReasonAppArmor           = "AppArmor"
	ReasonShutdown           = "NodeShutdown"
	ReasonOutOf              = "OutOf"
)

// MessagePrefix precedes the detail in the status message of a rejected pod.
const MessagePrefix = "Pod was rejected: "

// Messages of checks. All but the shutdown are checks of the scheduler, too.
const (
	saysNodeName     = "node(s) didn't match the requested node name"
	saysNodeAffinity = "node(s) didn't match Pod's node affinity/selector"
	saysNodePorts    = "node(s) didn't have free ports for the requested pod ports"
	saysShutdown     = "Pod was rejected as the node is shutting down."
	saysTaint        = "node(s) had taints that the pod didn't tolerate"
)

// safeSysctls may be set by any pod: they are namespaced, some only from the named kernel
// version on, and cannot affect other pods.
var safeSysctls = map[string]string{
	"kernel.shm_rmid_forced":              "",
	"net.ipv4.ip_local_port_range":        "",
	"net.ipv4.ip_local_reserved_ports":    "3.16",
	"net.ipv4.ip_unprivileged_port_start": "",
	"net.ipv4.ping_group_range":           "",
	"net.ipv4.tcp_fin_timeout":            "4.6",
	"net.ipv4.tcp_keepalive_intvl":        "4.5",
	"net.ipv4.tcp_keepalive_probes":       "4.5",
	"net.ipv4.tcp_keepalive_time":         "4.5",
	"net.ipv4.tcp_rmem":                   "4.15",
	"net.ipv4.tcp_syncookies":             "",
	"net.ipv4.tcp_wmem":                   "4.15",
}
