package manifest

import (
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// setDefaults sets the defaults that the API server sets in a pod that is created.
func setDefaults(p *v1.Pod) {
	s := &p.Spec
	def(&s.EnableServiceLinks, true)
	def(&s.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	if *s.TerminationGracePeriodSeconds < 0 {
		*s.TerminationGracePeriodSeconds = 1
	}
	defValue(&s.DNSPolicy, v1.DNSClusterFirst)
	defValue(&s.RestartPolicy, v1.RestartPolicyAlways)
	defValue(&s.SchedulerName, v1.DefaultSchedulerName)
	if s.SecurityContext == nil {
		s.SecurityContext = &v1.PodSecurityContext{}
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i], s.HostNetwork)
		requestLimits(&s.InitContainers[i].Resources)
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i], s.HostNetwork)
		requestLimits(&s.Containers[i].Resources)
	}
	for i := range s.EphemeralContainers {
		// The two types differ in their name only.
		defaultContainer((*v1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon), s.HostNetwork)
	}
	defaultPodResources(p)
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i].VolumeSource)
	}
	roundAmounts(s)
	roundStatus(&p.Status)
}

func defaultContainer(c *v1.Container, hostNetwork bool) {
	defValue(&c.ImagePullPolicy, pullPolicy(c.Image))
	defValue(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	defValue(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		port := &c.Ports[i]
		defValue(&port.Protocol, v1.ProtocolTCP)
		if hostNetwork {
			defValue(&port.HostPort, port.ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			if from.FieldRef != nil {
				defValue(&from.FieldRef.APIVersion, "v1")
			}
			if from.FileKeyRef != nil {
				def(&from.FileKeyRef.Optional, false)
			}
		}
	}
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if l := c.Lifecycle; l != nil {
		for _, h := range []*v1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				defaultHTTP(h.HTTPGet)
			}
		}
	}
}

// requestLimits sets the request of a resource to its limit where there is no request.
func requestLimits(r *v1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = v1.ResourceList{} // the UID of a static pod differs between an empty list and none
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// defaultPodResources fills the resources of a pod as a whole (KEP-2837), if it has any:
// the limit of huge pages is the sum of the containers' limits, and where the pod has
// limits, its request is the sum of its containers' requests, else its limit.
func defaultPodResources(p *v1.Pod) {
	r := p.Spec.Resources
	if r == nil || len(r.Requests) == 0 && len(r.Limits) == 0 {
		return
	}
	fill := func(list *v1.ResourceList, name v1.ResourceName, q apiresource.Quantity) {
		if _, ok := (*list)[name]; ok || !resource.IsSupportedPodLevelResource(name) {
			return
		}
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = q.DeepCopy()
	}
	for name, q := range resource.AggregateContainerLimits(p, resource.PodResourcesOptions{}) {
		if _, ok := r.Requests[name]; !ok && isHugePages(name) {
			fill(&r.Limits, name, q)
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	for name, q := range resource.AggregateContainerRequests(p, resource.PodResourcesOptions{}) {
		if !isHugePages(name) {
			fill(&r.Requests, name, q)
		}
	}
	for name, q := range r.Limits {
		fill(&r.Requests, name, q)
	}
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// roundAmounts rounds quantities up to thousandths, the smallest unit of the API. Sums are
// computed before.
func roundAmounts(s *v1.PodSpec) {
	lists := []v1.ResourceList{s.Overhead}
	if s.Resources != nil {
		lists = append(lists, s.Resources.Limits, s.Resources.Requests)
	}
	for _, containers := range [][]v1.Container{s.InitContainers, s.Containers} {
		for _, c := range containers {
			lists = append(lists, c.Resources.Limits, c.Resources.Requests)
		}
	}
	for _, c := range s.EphemeralContainers {
		lists = append(lists, c.Resources.Limits, c.Resources.Requests)
	}
	for _, v := range s.Volumes {
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			claim := &v.Ephemeral.VolumeClaimTemplate.Spec
			lists = append(lists, claim.Resources.Limits, claim.Resources.Requests)
		}
	}
	roundUp(lists)
}

// roundStatus rounds the quantities of a status. The status of a manifest is dropped, but
// the UID is a hash over it, too.
func roundStatus(s *v1.PodStatus) {
	lists := []v1.ResourceList{s.AllocatedResources}
	if s.Resources != nil {
		lists = append(lists, s.Resources.Limits, s.Resources.Requests)
	}
	for _, statuses := range [][]v1.ContainerStatus{
		s.InitContainerStatuses,
		s.ContainerStatuses,
		s.EphemeralContainerStatuses,
	} {
		for _, c := range statuses {
			lists = append(lists, c.AllocatedResources)
			if c.Resources != nil {
				lists = append(lists, c.Resources.Limits, c.Resources.Requests)
			}
		}
	}
	roundUp(lists)
}

func roundUp(lists []v1.ResourceList) {
	for _, list := range lists {
		for name, q := range list {
			q.RoundUp(apiresource.Milli)
			list[name] = q
		}
	}
}

func defaultProbe(p *v1.Probe) {
	if p == nil {
		return
	}
	defValue(&p.TimeoutSeconds, 1)
	defValue(&p.PeriodSeconds, 10)
	defValue(&p.SuccessThreshold, 1)
	defValue(&p.FailureThreshold, 3)
	defaultHTTP(p.HTTPGet)
	if p.GRPC != nil {
		def(&p.GRPC.Service, "")
	}
}

func defaultHTTP(h *v1.HTTPGetAction) {
	if h != nil {
		defValue(&h.Path, "/")
		defValue(&h.Scheme, v1.URISchemeHTTP)
	}
}

func defaultVolume(v *v1.VolumeSource) {
	if *v == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		def(&v.HostPath.Type, v1.HostPathUnset)
	}
	if v.Secret != nil {
		def(&v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		def(&v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		def(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultItems(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		def(&v.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				def(&source.ServiceAccountToken.ExpirationSeconds, 3600)
			}
			if source.DownwardAPI != nil {
				defaultItems(source.DownwardAPI.Items)
			}
		}
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		claim := &v.Ephemeral.VolumeClaimTemplate.Spec
		def(&claim.VolumeMode, v1.PersistentVolumeFilesystem)
	}
	if v.Image != nil {
		defValue(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	defaultRemote(v)
}

// defaultRemote sets the defaults of volume sources that are not on the node.
func defaultRemote(v *v1.VolumeSource) {
	if v.ISCSI != nil {
		defValue(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		defValue(&v.RBD.RBDPool, "rbd")
		defValue(&v.RBD.RadosUser, "admin")
		defValue(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.ScaleIO != nil {
		defValue(&v.ScaleIO.StorageMode, "ThinProvisioned")
		defValue(&v.ScaleIO.FSType, "xfs")
	}
	if v.AzureDisk != nil {
		def(&v.AzureDisk.CachingMode, v1.AzureDataDiskCachingReadWrite)
		def(&v.AzureDisk.Kind, v1.AzureSharedBlobDisk)
		def(&v.AzureDisk.FSType, "ext4")
		def(&v.AzureDisk.ReadOnly, false)
	}
}

func defaultItems(items []v1.DownwardAPIVolumeFile) {
	for _, item := range items {
		if item.FieldRef != nil {
			defValue(&item.FieldRef.APIVersion, "v1")
		}
	}
}

// pullPolicy returns the default pull policy: Always for the tag latest or no tag, else
// IfNotPresent.
func pullPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent // an invalid image fails whatever the policy
	}
	tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
	if ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func def[T any](p **T, v T) {
	if *p == nil {
		*p = ptr.To(v)
	}
}

func defValue[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
