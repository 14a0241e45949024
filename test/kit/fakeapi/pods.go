package fakeapi

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func defPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// admitPod does to a new pod what the API server does: a fresh status and the
// defaults that clients see.
func admitPod(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosOf(p)}
	s := &p.Spec
	def(&s.RestartPolicy, corev1.RestartPolicyAlways)
	def(&s.DNSPolicy, corev1.DNSClusterFirst)
	def(&s.SchedulerName, corev1.DefaultSchedulerName)
	def(&s.ServiceAccountName, "default")
	s.DeprecatedServiceAccount = s.ServiceAccountName
	defPtr(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	defPtr(&s.SecurityContext, corev1.PodSecurityContext{})
	defPtr(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	defPtr(&s.Priority, 0)
	defPtr(&s.PreemptionPolicy, corev1.PreemptLowerPriority)
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i], s.HostNetwork)
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i], s.HostNetwork)
	}
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	def(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	def(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = corev1.PullIfNotPresent
		if last := c.Image[strings.LastIndexByte(c.Image, '/')+1:]; !strings.ContainsAny(last, ":@") ||
			strings.HasSuffix(last, ":latest") {
			c.ImagePullPolicy = corev1.PullAlways
		}
	}
	for i := range c.Ports {
		def(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			def(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for name, limit := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[name] = limit.DeepCopy()
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			def(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		def(&probe.TimeoutSeconds, 1)
		def(&probe.PeriodSeconds, 10)
		def(&probe.SuccessThreshold, 1)
		def(&probe.FailureThreshold, 3)
		defaultHTTPGet(probe.HTTPGet)
		if probe.GRPC != nil {
			defPtr(&probe.GRPC.Service, "")
		}
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultHTTPGet(g *corev1.HTTPGetAction) {
	if g != nil {
		def(&g.Path, "/")
		def(&g.Scheme, corev1.URISchemeHTTP)
	}
}

const (
	fileMode  int32 = 0o644
	tokenLife int64 = 3600
)

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		defPtr(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		defPtr(&v.Secret.DefaultMode, fileMode)
	}
	if v.ConfigMap != nil {
		defPtr(&v.ConfigMap.DefaultMode, fileMode)
	}
	if v.DownwardAPI != nil {
		defPtr(&v.DownwardAPI.DefaultMode, fileMode)
		defaultFieldRefs(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defPtr(&v.Projected.DefaultMode, fileMode)
		for i := range v.Projected.Sources {
			if t := v.Projected.Sources[i].ServiceAccountToken; t != nil {
				defPtr(&t.ExpirationSeconds, tokenLife)
			}
			if d := v.Projected.Sources[i].DownwardAPI; d != nil {
				defaultFieldRefs(d.Items)
			}
		}
	}
}

func defaultFieldRefs(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			def(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

// qosOf is the class by the containers' CPU and memory. It reads the limits before
// requests are defaulted from them. The result is the same.
func qosOf(p *corev1.Pod) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, c := range append(append([]corev1.Container{}, p.Spec.InitContainers...), p.Spec.Containers...) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			limited, requested = limited && !limit.IsZero(), requested && !request.IsZero()
			any = any || limited || requested
			if !limited || requested && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// graceOf is the grace period of a deletion: that of the request, or else that of the pod;
// zero for a pod that is not bound to a node or has terminated.
func graceOf(p *corev1.Pod, opts metav1.DeleteOptions) int64 {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case opts.GracePeriodSeconds != nil:
		grace = *opts.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		grace = 0
	}
	if grace < 0 {
		grace = 1
	}
	return grace
}

func defaultService(s *corev1.Service) {
	def(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	def(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	for i := range s.Spec.Ports {
		def(&s.Spec.Ports[i].Protocol, corev1.ProtocolTCP)
		if s.Spec.Ports[i].TargetPort == (intstr.IntOrString{}) {
			s.Spec.Ports[i].TargetPort = intstr.FromInt32(s.Spec.Ports[i].Port)
		}
	}
}

// backFromTheDead names a container that had terminated, is not restarted by its pod's restart
// policy, and is no longer terminated in the new status. The API server rejects such a status,
// unless a rule of the pod can restart all of its containers.
func backFromTheDead(was, now *corev1.Pod) string {
	if was.Spec.RestartPolicy == corev1.RestartPolicyAlways || restartsAll(was) {
		return ""
	}
	after := map[string]corev1.ContainerState{}
	for _, c := range now.Status.ContainerStatuses {
		after[c.Name] = c.State
	}
	for _, c := range was.Status.ContainerStatuses {
		ended := c.State.Terminated
		if ended == nil || ended.ExitCode != 0 && was.Spec.RestartPolicy == corev1.RestartPolicyOnFailure ||
			ownPolicy(was, c.Name) {
			continue
		}
		if s, there := after[c.Name]; there && s.Terminated == nil {
			return c.Name
		}
	}
	return ""
}

func restartsAll(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// ownPolicy reports whether the container has a restart policy of its own.
func ownPolicy(p *corev1.Pod, name string) bool {
	for _, c := range p.Spec.Containers {
		if c.Name == name {
			return c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0
		}
	}
	return false
}
