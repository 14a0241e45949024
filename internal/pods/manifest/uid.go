package manifest

import (
	"encoding/hex"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// origin is the location of a manifest.
type origin struct {
	host, file string
	url        string
}

func (o origin) write(h hash.Hash) {
	if o.url != "" {
		fmt.Fprintf(h, "url:%s", o.url)
		return
	}
	fmt.Fprintf(h, "host:%sfile:%s", o.host, o.file)
}

// manifestUID is the UID of a pod whose manifest has none: a hash of the pod, its location
// and the node's name. It equals upstream's (docs/decisions/0004), because the running
// containers of a static pod are found by it. p is as it was decoded, with defaults.
func manifestUID(p *v1.Pod, o origin) types.UID {
	// The hash contains the fields of time.Local, which are empty until package time has loaded the zone on first
	// use. Upstream has loaded it by now, since it logs in that zone.
	_ = time.Local.String()
	h := fnv.New128a()
	printInternal(h, asInternal(p))
	o.write(h)
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

// asInternal returns the pod with the values that it has after upstream's conversion to
// its internal version.
func asInternal(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.TypeMeta.Kind, p.TypeMeta.APIVersion = "", ""
	for _, name := range formerInitContainers {
		delete(p.Annotations, name)
	}
	if p.Spec.ServiceAccountName == "" {
		p.Spec.ServiceAccountName = p.Spec.DeprecatedServiceAccount
	}
	if s := &p.Status; s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []v1.PodIP{{IP: s.PodIP}}
	}
	return p
}

// formerInitContainers are annotations from before init containers had a field; upstream's
// conversion drops them.
var formerInitContainers = []string{
	"pod.beta.kubernetes.io/init-containers",
	"pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses",
	"pod.alpha.kubernetes.io/init-container-statuses",
}

// The fields of the types whose internal version differs from that of the API.
var (
	internalPodSpec = []string{
		"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds",
		"ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName", "AutomountServiceAccountToken",
		"NodeName", "SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain", "SetHostnameAsFQDN", "Affinity",
		"SchedulerName", "Tolerations", "HostAliases", "PriorityClassName", "Priority", "PreemptionPolicy", "DNSConfig",
		"ReadinessGates", "RuntimeClassName", "Overhead", "EnableServiceLinks", "TopologySpreadConstraints", "OS",
		"SchedulingGates", "ResourceClaims", "Resources", "HostnameOverride", "SchedulingGroup",
	}
	// internalOfSpec are in the security context, before its own fields.
	internalOfSpec             = []string{"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers"}
	internalPodSecurityContext = []string{
		"SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups",
		"SupplementalGroupsPolicy", "FSGroup", "FSGroupChangePolicy", "Sysctls", "SeccompProfile", "AppArmorProfile",
		"SELinuxChangePolicy",
	}
	internalPodStatus = []string{
		"ObservedGeneration", "Phase", "Conditions", "Message", "Reason", "NominatedNodeName", "HostIP", "HostIPs",
		"PodIPs",
		"StartTime", "QOSClass", "InitContainerStatuses", "ContainerStatuses", "EphemeralContainerStatuses", "Resize",
		"ResourceClaimStatuses", "ExtendedResourceClaimStatus", "AllocatedResources", "Resources",
		"NodeAllocatableResourceClaimStatuses",
	}
	internalVolumeSource = []string{
		"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS", "ISCSI",
		"Glusterfs",
		"PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker", "DownwardAPI", "FC",
		"AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk", "Projected", "PortworxVolume",
		"ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
	}
	// internalMissing are fields of the API that the internal version lacks.
	internalMissing = append(slices.Clone(internalOfSpec), "DeprecatedServiceAccount", "PodIP")
)
