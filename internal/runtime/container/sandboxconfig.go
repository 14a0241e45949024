package container

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
)

// sandboxInput is the input of sandboxConfig.
type sandboxInput struct {
	pod          *v1.Pod
	attempt      uint32
	hostname     string // empty on the host network
	dns          resolvConf
	logDir       string
	cgroupParent string
	groups       []int64 // of the pod's volumes
	userns       *runtimeapi.UserNamespace
	cpu          cpuRules
	exclusive    bool // a container has exclusive CPUs
	oomGroup     bool
}

// sandboxConfig builds the CRI configuration of a sandbox.
func sandboxConfig(in sandboxInput) *runtimeapi.PodSandboxConfig {
	p := in.pod
	resources, overhead := sandboxResources(p, in.cpu, in.exclusive, in.oomGroup)
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      p.Name,
			Namespace: p.Namespace,
			Uid:       string(p.UID),
			Attempt:   in.attempt,
		},
		Hostname:     in.hostname,
		LogDirectory: in.logDir,
		DnsConfig: &runtimeapi.DNSConfig{
			Servers:  in.dns.Servers,
			Searches: in.dns.Searches,
			Options:  in.dns.Options,
		},
		PortMappings: portMappings(p),
		Labels:       sandboxLabels(p),
		Annotations:  maps.Clone(p.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    in.cgroupParent,
			SecurityContext: sandboxSecurity(p, in.groups, in.userns),
			Sysctls:         sysctls(p),
			Overhead:        overhead,
			Resources:       resources,
		},
	}
}

// sandboxLabels returns the pod's labels and those by which the agent recognises its sandboxes
// after a restart.
func sandboxLabels(p *v1.Pod) map[string]string {
	l := make(map[string]string, len(p.Labels)+3)
	maps.Copy(l, p.Labels)
	l[pod.LabelPodName] = p.Name
	l[pod.LabelPodNamespace] = p.Namespace
	l[pod.LabelPodUID] = string(p.UID)
	return l
}

// sandboxSecurity returns the security context of the sandbox. Its only process is the pause
// process, for which the runtime's default seccomp profile is always sufficient.
func sandboxSecurity(
	p *v1.Pod, groups []int64, userns *runtimeapi.UserNamespace,
) *runtimeapi.LinuxSandboxSecurityContext {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p, "", userns),
		Privileged:       anyPrivileged(p),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	sc := p.Spec.SecurityContext
	if sc == nil {
		sc = &v1.PodSecurityContext{}
	}
	out.RunAsUser = int64Value(sc.RunAsUser)
	out.RunAsGroup = int64Value(sc.RunAsGroup)
	out.SupplementalGroups = supplementalGroups(sc, groups)
	out.SupplementalGroupsPolicy = groupsPolicy(sc.SupplementalGroupsPolicy)
	out.SelinuxOptions = selinuxOptions(sc.SELinuxOptions)
	return out
}

func anyPrivileged(p *v1.Pod) bool {
	for _, c := range pod.Containers(p) {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			return true
		}
	}
	return false
}

// sysctls returns the pod's sysctls.
func sysctls(p *v1.Pod) map[string]string {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	var out map[string]string
	for _, s := range p.Spec.SecurityContext.Sysctls {
		if out == nil {
			out = map[string]string{}
		}
		out[sysctlName(s.Name)] = s.Value
	}
	return out
}

// sysctlName converts kernel/shm_rmid_forced to the form with dots. The first separator determines
// the form; the other character is then part of a name, for example that of a network interface.
func sysctlName(s string) string {
	i := strings.IndexAny(s, "./")
	if i < 0 || s[i] == '.' {
		return s
	}
	return strings.Map(func(c rune) rune {
		switch c {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return c
	}, s)
}
