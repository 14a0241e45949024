package desired

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// setDefaults fills what the API server would fill in a pod that is created.
func setDefaults(p *v1.Pod) {
	s := &p.Spec
	def(&s.EnableServiceLinks, true)
	def(&s.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	defValue(&s.DNSPolicy, v1.DNSClusterFirst)
	defValue(&s.RestartPolicy, v1.RestartPolicyAlways)
	defValue(&s.SchedulerName, v1.DefaultSchedulerName)
	if s.SecurityContext == nil {
		s.SecurityContext = &v1.PodSecurityContext{}
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i], s.HostNetwork)
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i], s.HostNetwork)
	}
	defaultPodResources(p)
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i].VolumeSource)
	}
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
	// A limit without a request asks for as much as the limit.
	for name, limit := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = v1.ResourceList{}
			}
			c.Resources.Requests[name] = limit.DeepCopy()
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

// defaultPodResources fills requests of the pod as a whole (KEP-2837) that have
// a limit: with the sum of the containers' requests if they have any.
func defaultPodResources(p *v1.Pod) {
	r := p.Spec.Resources
	if r == nil {
		return
	}
	sum := resource.AggregateContainerRequests(p, resource.PodResourcesOptions{})
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok || !resource.IsSupportedPodLevelResource(name) {
			continue
		}
		if r.Requests == nil {
			r.Requests = v1.ResourceList{}
		}
		r.Requests[name] = limit.DeepCopy()
		if q, ok := sum[name]; ok && !q.IsZero() && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			r.Requests[name] = q
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
	if v.Image != nil {
		defValue(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.ISCSI != nil {
		defValue(&v.ISCSI.ISCSIInterface, "default")
	}
}

func defaultItems(items []v1.DownwardAPIVolumeFile) {
	for _, item := range items {
		if item.FieldRef != nil {
			defValue(&item.FieldRef.APIVersion, "v1")
		}
	}
}

// pullPolicy follows the tag: what may change under its name is pulled always.
func pullPolicy(image string) v1.PullPolicy {
	if strings.Contains(image, "@") {
		return v1.PullIfNotPresent
	}
	// The tag follows the last colon of the last part; a colon before that
	// belongs to the registry's port.
	_, tag, tagged := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	if !tagged || tag == "latest" {
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
