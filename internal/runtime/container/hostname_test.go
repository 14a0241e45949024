package container

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

func TestPodNames(t *testing.T) {
	parity.Proves(t, "LIFE-65")
	parity.ProvesPart(t, 2, "LIFE-67")
	parity.ProvesPart(t, 2, "LIFE-64")
	parity.ProvesPart(t, 3, "LIFE-66")
	long := strings.Repeat("a", 62)
	for _, tc := range []struct {
		name, pod    string
		spec         v1.PodSpec
		host, domain string
		kernel, err  string
	}{
		{name: "the pod's name", pod: "web", host: "web", kernel: "web"},
		{name: "a host name", pod: "web", spec: v1.PodSpec{Hostname: "h"}, host: "h", kernel: "h"},
		{name: "a name of 63 characters is not cut", pod: long + "b", host: long + "b", kernel: long + "b"},
		{name: "a longer one is cut, and its end cleaned", pod: long + "-b", host: long, kernel: long},
		{name: "a cut may end in several separators", pod: long[:60] + "-.-b", host: long[:60], kernel: long[:60]},
		{
			name: "on the host network the host name is the node's",
			pod:  "web",
			spec: v1.PodSpec{HostNetwork: true},
			host: "web",
		},
		{
			name:   "a subdomain",
			pod:    "web",
			spec:   v1.PodSpec{Subdomain: "sub"},
			host:   "web",
			domain: "sub.ns.svc.cluster.local",
			kernel: "web",
		},
		{
			name:   "which may be the kernel's name too",
			pod:    "web",
			spec:   v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: ptr.To(true)},
			host:   "web",
			domain: "sub.ns.svc.cluster.local",
			kernel: "web.sub.ns.svc.cluster.local",
		},
		{
			name:   "setHostnameAsFQDN without a subdomain",
			pod:    "web",
			spec:   v1.PodSpec{SetHostnameAsFQDN: ptr.To(true)},
			host:   "web",
			kernel: "web",
		},
		{
			name:   "a full name of 64 fits",
			pod:    strings.Repeat("a", 39),
			spec:   v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: ptr.To(true)},
			host:   strings.Repeat("a", 39),
			domain: "sub.ns.svc.cluster.local",
			kernel: strings.Repeat("a", 39) + ".sub.ns.svc.cluster.local",
		},
		{
			name:   "one of 65 does not",
			pod:    strings.Repeat("a", 40),
			spec:   v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: ptr.To(true)},
			host:   strings.Repeat("a", 40),
			domain: "sub.ns.svc.cluster.local",
			err:    "64 characters is the max, 65 characters requested",
		},
		{
			name:   "an override hides all of it",
			pod:    "web",
			spec:   v1.PodSpec{Hostname: "h", Subdomain: "sub", HostnameOverride: ptr.To("other.name")},
			host:   "other.name",
			kernel: "other.name",
		},
		{
			name:   "an override is cut",
			pod:    "web",
			spec:   v1.PodSpec{HostnameOverride: ptr.To(long + ".xx")},
			host:   long,
			kernel: long,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tc.pod, Namespace: "ns"}, Spec: tc.spec}
			n := podNames(p, "cluster.local")
			if n.host != tc.host || n.domain != tc.domain {
				t.Errorf("names %+v, want %s %s", n, tc.host, tc.domain)
			}
			kernel, err := kernelHostname(p, n)
			if kernel != tc.kernel || (err != nil) != (tc.err != "") ||
				err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("kernel's name %q, %v; want %q, %q", kernel, err, tc.kernel, tc.err)
			}
		})
	}
}

func TestPortMappings(t *testing.T) {
	parity.Proves(t, "LIFE-120")
	port := v1.ContainerPort{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP}
	with := func(change func(*v1.ContainerPort)) v1.ContainerPort { p := port; change(&p); return p }
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			{Ports: []v1.ContainerPort{{ContainerPort: 1, HostPort: 1}}},
			{
				RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways),
				Ports:         []v1.ContainerPort{{ContainerPort: 2, HostPort: 2}},
			},
		},
		Containers: []v1.Container{
			{Ports: []v1.ContainerPort{
				port, port,
				with(func(p *v1.ContainerPort) { p.Protocol = v1.ProtocolUDP }),
				with(func(p *v1.ContainerPort) { p.Protocol = v1.ProtocolSCTP }),
				with(func(p *v1.ContainerPort) { p.HostIP = "127.0.0.1" }),
				with(func(p *v1.ContainerPort) { p.HostIP = "::1" }),
				with(func(p *v1.ContainerPort) { p.Name, p.ContainerPort = "x", 81 }),
				with(func(p *v1.ContainerPort) { p.Name, p.ContainerPort = "x", 82 }),
			}},
			{Ports: []v1.ContainerPort{port}},
		},
	}}
	p.Name, p.Namespace, p.UID = "web", "ns", "uid-1"
	b := newBench(t, nil)
	b.run(t, p)
	ms := b.runtime.Pods()[0].Config.PortMappings
	var got []string
	for _, m := range ms {
		got = append(got, m.String())
	}
	if len(got) != 7 {
		t.Fatalf("%d mappings, want 7: %q", len(got), got)
	}
	for i, port := range []int32{80, 80, 80, 80, 80, 81, 80} {
		if ms[i].HostPort != 8080 || ms[i].ContainerPort != port {
			t.Errorf("mapping %d is %q", i, got[i])
		}
	}
	if ms[1].Protocol != 1 || ms[2].Protocol != 2 || ms[3].HostIp != "127.0.0.1" || ms[4].HostIp != "::1" ||
		ms[5].ContainerPort != 81 || ms[6].ContainerPort != 80 {
		t.Errorf("mappings %q", got)
	}
}
