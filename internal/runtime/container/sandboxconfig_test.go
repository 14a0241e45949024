package container

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/parity"
)

// TestSandboxConfigAllFields covers fields that the golden pods do not have, and the attempt.
func TestSandboxConfigAllFields(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-10")
	p := simplePod(func(c *v1.Container) {
		c.Ports = []v1.ContainerPort{
			{ContainerPort: 80, Protocol: v1.ProtocolTCP},
			{ContainerPort: 53, HostPort: 5353, HostIP: "127.0.0.1", Protocol: v1.ProtocolUDP},
		}
		c.Resources.Limits = list("cpu", "1", "memory", "1Gi")
	})
	p.ObjectMeta = metav1.ObjectMeta{
		Name:        "web",
		Namespace:   "ns",
		UID:         "uid-1",
		Labels:      map[string]string{"app": "web"},
		Annotations: map[string]string{"a.example.com/x": "1", "kubernetes.io/config.source": "file"},
	}
	p.Spec.Hostname = "front"
	p.Spec.DNSPolicy = v1.DNSNone
	p.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"}}
	p.Spec.Overhead = list("cpu", "100m", "memory", "1Gi")
	p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
		{Name: "kernel.shm_rmid_forced", Value: "1"},
		{Name: "net.ipv4.tcp_syncookies", Value: "0"},
	}}
	b := newBench(t, nil)
	if _, err := b.RunSandbox(t.Context(), p, 7); err != nil {
		t.Fatal(err)
	}
	compare(t, b.runtime.Pods()[0].Config, &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "uid-1", Attempt: 7},
		Hostname:     "front",
		LogDirectory: b.logs + "/ns_web_uid-1",
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.com"}},
		PortMappings: []*runtimeapi.PortMapping{
			{ContainerPort: 80},
			{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 53, HostPort: 5353, HostIp: "127.0.0.1"},
		},
		Labels: map[string]string{
			"app":                         "web",
			"io.kubernetes.pod.name":      "web",
			"io.kubernetes.pod.namespace": "ns",
			"io.kubernetes.pod.uid":       "uid-1",
		},
		Annotations: map[string]string{"a.example.com/x": "1", "kubernetes.io/config.source": "file"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/poduid-1",
			Sysctls:      map[string]string{"kernel.shm_rmid_forced": "1", "net.ipv4.tcp_syncookies": "0"},
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Pid:           runtimeapi.NamespaceMode_CONTAINER,
					UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE},
				},
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
			Resources: &runtimeapi.LinuxContainerResources{
				CpuPeriod:          100000,
				CpuQuota:           100000,
				CpuShares:          1024,
				MemoryLimitInBytes: 1 << 30,
			},
			Overhead: &runtimeapi.LinuxContainerResources{
				CpuPeriod:          100000,
				CpuQuota:           10000,
				CpuShares:          102,
				MemoryLimitInBytes: 1 << 30,
			},
		},
	})
}
