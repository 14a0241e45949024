//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson/test/kit/parity"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// TestEnvironment sets variables from every kind of source.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.configMap("conf", map[string]string{"CONF_A": "a", "OVER": "from the map"})
	s.secret("hidden", map[string]string{"WORD": "sesame"})
	svc, err := s.Cluster.Client.CoreV1().Services(s.ns).Create(t.Context(),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "back-end"},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"a": "b"},
				Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
			}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The agent has separate watches of services and of pods. A pod gets the variables of the services
	// that are known when it starts.
	for i := 0; !strings.Contains(s.says(s.demo(fmt.Sprint("asks-", i), []string{"env"})),
		"BACK_END_SERVICE_HOST="); i++ {
		if i == 30 {
			t.Fatal("pods do not get the service's variables")
		}
	}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{
			Name:      name,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}},
		}
	}
	named := corev1.LocalObjectReference{Name: "hidden"}
	p := s.demo("env", []string{"env"}, requests("cpu", "250m"), func(p *corev1.Pod) {
		p.Labels = map[string]string{"colour": "green"}
		p.Annotations = map[string]string{"note": "a b"}
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}},
			{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named}},
		}
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "PLAIN", Value: "p"}, {Name: "OVER", Value: "from env"},
			{Name: "BOTH", Value: "$(PLAIN)-$(CONF_A)-$$(PLAIN)-$(NONE)-$(BACK_END_SERVICE_PORT)"},
			{
				Name: "KEY",
				ValueFrom: &corev1.EnvVarSource{
					ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
						Key:                  "CONF_A",
					},
				},
			},
			{
				Name:      "SECRET",
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named, Key: "WORD"}},
			},
			{
				Name: "MAYBE",
				ValueFrom: &corev1.EnvVarSource{
					SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named, Key: "NO", Optional: ptr(true)},
				},
			},
			field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("UID", "metadata.uid"),
			field("LABEL", "metadata.labels['colour']"),
			field("NOTE", "metadata.annotations['note']"), field("NODE", "spec.nodeName"),
			field("ACCOUNT", "spec.serviceAccountName"),
			field("HOST_IP", "status.hostIP"), field("POD_IP", "status.podIP"), field("POD_IPS", "status.podIPs"),
			{
				Name: "CPU",
				ValueFrom: &corev1.EnvVarSource{
					ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: quantity("1m")},
				},
			},
		}
	})
	out := s.says(p)
	p = s.phase("env", corev1.PodSucceeded)
	have := map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		k, v, _ := strings.Cut(line, "=")
		have[k] = v
	}
	for k, want := range map[string]string{
		"PLAIN": "p", "OVER": "from env", "BOTH": "p-a-$(PLAIN)-$(NONE)-80", "KEY": "a", "SECRET": "sesame",
		"S_WORD": "sesame", "CONF_A": "a",
		"NAME": "env", "NS": s.ns, "UID": string(p.UID), "LABEL": "green", "NOTE": "a b", "NODE": s.Kubelet.Node,
		"ACCOUNT": "default",
		"HOST_IP": s.NodeIP(), "POD_IP": p.Status.PodIP, "POD_IPS": p.Status.PodIP, "CPU": "250", "HOSTNAME": "env",
		"BACK_END_SERVICE_HOST": svc.Spec.ClusterIP, "BACK_END_SERVICE_PORT_HTTP": "80",
		"BACK_END_PORT":             "tcp://" + svc.Spec.ClusterIP + ":80",
		"BACK_END_PORT_80_TCP_ADDR": svc.Spec.ClusterIP, "KUBERNETES_SERVICE_PORT": "443",
	} {
		if have[k] != want {
			t.Errorf("%s=%q, want %q", k, have[k], want)
		}
	}
	if v, there := have["MAYBE"]; there {
		t.Errorf("MAYBE=%q, want none", v)
	}
	if have["POD_IP"] == "" {
		t.Error("no address of the pod")
	}
}

// TestMissingKey checks that a container waits until the key of its variable exists.
func TestMissingKey(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("wants", []string{"sleep"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KEY",
			ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}, Key: "a"}}}}
	}))
	p := s.pod("wants", "waiting for its configuration", func(p *corev1.Pod) bool {
		c := container(p, "main")
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CreateContainerConfigError"
	})
	if m := container(p, "main").State.Waiting.Message; m != `configmap "conf" not found` {
		t.Errorf("message %q", m)
	}
	s.event("wants", "Failed", `Error: configmap "conf" not found`)
	s.configMap("conf", map[string]string{"a": "b"})
	if p := s.ready("wants"); container(p, "main").RestartCount != 0 {
		t.Errorf("restart count %d", container(p, "main").RestartCount)
	}
}

// TestNames reads hostname, hosts file and resolver configuration in pods of
// their own network and of the node's.
func TestNames(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "LIFE-65")
	s := shared(t).namespace(t)
	own := s.demo("own", []string{"cat", "/etc/hosts", "/etc/resolv.conf"}, func(p *corev1.Pod) {
		p.Spec.Hostname, p.Spec.Subdomain = "me", "sub"
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"other", "another"}}}
	})
	out := s.says(own)
	ip := s.phase("own", corev1.PodSucceeded).Status.PodIP
	domain := s.ns + ".svc.cluster.local"
	for _, want := range []string{
		"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
		"\n" + ip + "\tme.sub." + domain + "\tme\n",
		"\n# Entries added by HostAliases.\n192.0.2.1\tother\tanother\n",
		"search " + domain + " svc.cluster.local cluster.local\n",
		"\nnameserver 10.96.0.10\n",
		"\noptions ndots:5\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	host := s.demo("host", []string{"cat", "/etc/hosts", "/etc/resolv.conf", "/proc/sys/kernel/hostname"},
		func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	out = s.says(host)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Kubernetes-managed hosts file (host network).\n", "nameserver 127.0.0.1\n",
		name + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if p := s.phase("host", corev1.PodSucceeded); p.Status.PodIP != s.NodeIP() || p.Status.HostIP != s.NodeIP() {
		t.Errorf("pod address %q, host address %q", p.Status.PodIP, p.Status.HostIP)
	}
}

// TestPodsReachEachOther sends a request from one pod to another.
func TestPodsReachEachOther(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("web", []string{"serve"}, listening))
	ip := s.ready("web").Status.PodIP
	if out := s.says(s.demo("client", []string{"get", "http://" + ip + ":8080/"})); !strings.HasPrefix(out,
		"hello from web") {
		t.Errorf("answer %q", out)
	}
}
