package container

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/parity"
)

func field(path string) *v1.EnvVarSource {
	return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
}

func amount(res, divisor string) *v1.EnvVarSource {
	s := &v1.ResourceFieldSelector{Resource: res}
	if divisor != "" {
		s.Divisor = resource.MustParse(divisor)
	}
	return &v1.EnvVarSource{ResourceFieldRef: s}
}

func configKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{
		ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: name},
			Key:                  key,
			Optional:             &optional,
		},
	}
}

func secretKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{
		SecretKeyRef: &v1.SecretKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: name},
			Key:                  key,
			Optional:             &optional,
		},
	}
}

func fromMap(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{
		Prefix: prefix,
		ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: name},
			Optional:             &optional,
		},
	}
}

func fromSecret(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{
		Prefix:    prefix,
		SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional},
	}
}

func TestEnv(t *testing.T) {
	parity.Proves(t, "LIFE-86")
	parity.Differs(t, "LIFE-87", "0111")
	parity.ProvesPart(t, 2, "LIFE-83")
	parity.ProvesPart(t, 4, "LIFE-84")
	parity.ProvesPart(t, 2, "LIFE-88")
	objects := fakeObjects{
		maps: map[string]map[string]string{
			"ns/cm":    {"a": "1", "b.txt": "two"},
			"ns/other": {"a": "9"},
			"ns/refs":  {"k": "$(A)"},
		},
		secrets: map[string]map[string]string{"ns/sec": {"s": "shh"}},
	}
	for _, tc := range []struct {
		name  string
		c     v1.Container
		pod   func(*v1.Pod)
		hosts []string // the node's addresses, if other than those of the bench
		want  string   // NAME=value, space separated, or an error
	}{
		{
			name: "plain values in their order",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "B", Value: "1"}, {Name: "A", Value: "2"}, {Name: "E"}}},
			want: "B=1 A=2 E=",
		},
		{
			name: "the last value of a name counts",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}},
			want: "A=2",
		},
		{
			name: "values see what stands before them",
			c: v1.Container{
				Env: []v1.EnvVar{
					{Name: "A", Value: "$(B)"},
					{Name: "B", Value: "1"},
					{Name: "C", Value: "<$(B)>"},
					{Name: "B", Value: "$(B)2"},
				},
			},
			want: "A=$(B) B=12 C=<1>",
		},
		{
			name: "values see services",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "$(KUBERNETES_SERVICE_PORT)"}}},
			want: "A=443",
		},
		{
			name: "a config map whole",
			c:    v1.Container{EnvFrom: []v1.EnvFromSource{fromMap("cm", "P_", false)}},
			want: "P_a=1 P_b.txt=two",
		},
		{name: "a secret whole", c: v1.Container{EnvFrom: []v1.EnvFromSource{fromSecret("sec", "", false)}}, want: "s=shh"},
		{
			name: "a later source overrides, and env overrides all",
			c: v1.Container{
				EnvFrom: []v1.EnvFromSource{fromMap("cm", "", false), fromMap("other", "", false)},
				Env:     []v1.EnvVar{{Name: "b.txt", Value: "env $(a)"}},
			},
			want: "a=9 b.txt=env 9",
		},
		{
			name: "values from sources are not expanded",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "X", ValueFrom: configKey("refs", "k", false)}}},
			want: "A=1 X=$(A)",
		},
		{
			name: "an optional config map that is not there",
			c:    v1.Container{EnvFrom: []v1.EnvFromSource{fromMap("no", "", true)}},
			want: "",
		},
		{
			name: "a config map that is not there",
			c:    v1.Container{EnvFrom: []v1.EnvFromSource{fromMap("no", "", false)}},
			want: `configmaps "no" not found`,
		},
		{
			name: "an optional secret that is not there",
			c:    v1.Container{EnvFrom: []v1.EnvFromSource{fromSecret("no", "", true)}},
			want: "",
		},
		{
			name: "a secret that is not there",
			c:    v1.Container{EnvFrom: []v1.EnvFromSource{fromSecret("no", "", false)}},
			want: `secrets "no" not found`,
		},
		{
			name: "one key",
			c: v1.Container{
				Env: []v1.EnvVar{
					{Name: "A", ValueFrom: configKey("cm", "a", false)},
					{Name: "S", ValueFrom: secretKey("sec", "s", false)},
				},
			},
			want: "A=1 S=shh",
		},
		{
			name: "an optional key that is not there",
			c: v1.Container{
				Env: []v1.EnvVar{
					{Name: "A", ValueFrom: configKey("cm", "x", true)},
					{Name: "S", ValueFrom: secretKey("sec", "x", true)},
					{Name: "T", ValueFrom: secretKey("no", "x", true)},
				},
			},
			want: "",
		},
		{
			name: "a key that is not there",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: configKey("cm", "x", false)}}},
			want: "couldn't find key x in ConfigMap ns/cm",
		},
		{
			name: "a secret's key that is not there",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: secretKey("sec", "x", false)}}},
			want: "couldn't find key x in Secret ns/sec",
		},
		{
			name: "fields of the pod",
			pod: func(p *v1.Pod) {
				p.Labels, p.Annotations = map[string]string{"l/x": "1"}, map[string]string{"a": "2"}
				p.Spec.NodeName, p.Spec.ServiceAccountName = "n1", "sa"
			},
			c: v1.Container{Env: []v1.EnvVar{
				{
					Name:      "NAME",
					ValueFrom: field("metadata.name"),
				},
				{Name: "NS", ValueFrom: field("metadata.namespace")},
				{Name: "UID", ValueFrom: field("metadata.uid")},
				{
					Name:      "L",
					ValueFrom: field("metadata.labels['l/x']"),
				},
				{
					Name:      "A",
					ValueFrom: field("metadata.annotations['a']"),
				},
				{Name: "NONE", ValueFrom: field("metadata.labels['no']")},
				{Name: "NODE", ValueFrom: field("spec.nodeName")},
				{Name: "SA", ValueFrom: field("spec.serviceAccountName")},
				{
					Name:      "H",
					ValueFrom: field("status.hostIP"),
				},
				{
					Name:      "HS",
					ValueFrom: field("status.hostIPs"),
				},
				{Name: "P", ValueFrom: field("status.podIP")},
				{Name: "PS", ValueFrom: field("status.podIPs")},
			}},
			want: "NAME=web NS=ns UID=uid-1 L=1 A=2 NONE= NODE=n1 SA=sa H=192.0.2.10 HS=192.0.2.10 P=10.88.0.2 " +
				"PS=10.88.0.2,fd00::2",
		},
		{
			name:  "fields of the host with addresses of both families",
			hosts: []string{"192.0.2.10", "2001:db8::1"},
			c: v1.Container{Env: []v1.EnvVar{
				{Name: "H", ValueFrom: field("status.hostIP")},
				{Name: "HS", ValueFrom: field("status.hostIPs")},
			}},
			want: "H=192.0.2.10 HS=192.0.2.10,2001:db8::1",
		},
		{
			name: "an unknown field",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "X", ValueFrom: field("spec.magic")}}},
			want: "unsupported fieldPath: spec.magic",
		},
		{
			name: "on the host's network the pod's address is the node's",
			pod:  func(p *v1.Pod) { p.Spec.HostNetwork = true },
			c:    v1.Container{Env: []v1.EnvVar{{Name: "P", ValueFrom: field("status.podIPs")}}},
			want: "P=10.88.0.2,fd00::2",
		},
		{
			name: "amounts, rounded up",
			c: v1.Container{
				Resources: v1.ResourceRequirements{
					Requests: list("cpu", "1100m", "memory", "1025Ki", "ephemeral-storage", "7", "hugepages-2Mi",
						"4Mi"),
					Limits: list("cpu", "1500m", "memory", "1Gi", "ephemeral-storage", "10", "hugepages-2Mi", "4Mi"),
				},
				Env: []v1.EnvVar{
					{
						Name:      "A",
						ValueFrom: amount("requests.cpu", ""),
					},
					{Name: "B", ValueFrom: amount("requests.cpu", "1m")},
					{Name: "C", ValueFrom: amount("requests.memory", "1Mi")},
					{
						Name:      "D",
						ValueFrom: amount("limits.memory", ""),
					},
					{
						Name:      "E",
						ValueFrom: amount("limits.ephemeral-storage", "3"),
					},
					{Name: "F", ValueFrom: amount("limits.hugepages-2Mi", "1Mi")},
					{Name: "G", ValueFrom: amount("requests.ephemeral-storage", "2")},
					{Name: "H", ValueFrom: amount("requests.hugepages-2Mi", "3Mi")},
					{Name: "I", ValueFrom: amount("limits.cpu", "1m")},
				},
			},
			want: "A=2 B=1100 C=2 D=1073741824 E=4 F=4 G=4 H=2 I=1500",
		},
		{
			name: "no limit is what the node has",
			c: v1.Container{
				Env: []v1.EnvVar{
					{Name: "A", ValueFrom: amount("limits.cpu", "")},
					{Name: "B", ValueFrom: amount("limits.memory", "1Mi")},
					{Name: "C", ValueFrom: amount("requests.cpu", "")},
				},
			},
			want: "A=2 B=24006 C=0",
		},
		{
			name: "or what the pod has",
			pod: func(p *v1.Pod) {
				p.Spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "64Gi")}
			},
			c: v1.Container{
				Env: []v1.EnvVar{
					{Name: "A", ValueFrom: amount("limits.cpu", "")},
					{Name: "B", ValueFrom: amount("limits.memory", "1Mi")},
				},
			},
			want: "A=1 B=65536",
		},
		{
			name: "amounts of another container",
			pod: func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Limits: list("cpu", "3")}}}
			},
			c: v1.Container{
				Env: []v1.EnvVar{
					{
						Name: "A",
						ValueFrom: &v1.EnvVarSource{
							ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "init", Resource: "limits.cpu"},
						},
					},
				},
			},
			want: "A=3",
		},
		{ // upstream gives 0: decision 0111
			name: "a limit that an init container does not set",
			pod:  func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "init"}} },
			c: v1.Container{Env: []v1.EnvVar{{
				Name: "A",
				ValueFrom: &v1.EnvVarSource{
					ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "init", Resource: "limits.cpu"},
				},
			}}},
			want: "A=2",
		},
		{
			name: "an unknown resource",
			c:    v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: amount("limits.magic", "")}}},
			want: "unsupported container resource : limits.magic",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) {
				c.Objects = objects
				node := c.Node()
				if tc.hosts != nil {
					node.HostIPs = tc.hosts
				}
				c.Node = func() NodeFacts { return node }
			})
			p := simplePod(
				func(c *v1.Container) { c.Env, c.EnvFrom, c.Resources = tc.c.Env, tc.c.EnvFrom, tc.c.Resources },
			)
			if tc.pod != nil {
				tc.pod(p)
			}
			s := b.startOf(p, pod.Sandbox{})
			s.PodIPs = []string{"10.88.0.2", "fd00::2"}
			env, err := b.Env(t.Context(), s)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = join(slices.DeleteFunc(env,
					func(e pod.EnvVar) bool { return strings.HasPrefix(e.Name, "KUBERNETES_") }))
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func join(env []pod.EnvVar) string {
	var out []string
	for _, e := range env {
		out = append(out, e.Name+"="+e.Value)
	}
	return strings.Join(out, " ")
}

func TestEnvWithoutAnAPIServer(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Objects, c.Services = nil, nil })
	p := simplePod(func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A", Value: "1"}} })
	if env, err := b.Env(t.Context(), b.startOf(p, pod.Sandbox{})); err != nil || join(env) != "A=1" {
		t.Errorf("got %q, %v", join(env), err)
	}
	p = simplePod(func(c *v1.Container) { c.EnvFrom = []v1.EnvFromSource{fromMap("cm", "", true)} })
	if _, err := b.Env(t.Context(), b.startOf(p, pod.Sandbox{})); err == nil ||
		err.Error() != "couldn't get configMap ns/cm, no kubeClient defined" {
		t.Errorf("error %v", err)
	}
}

func TestEnvWaitsForServices(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-80")
	b := newBench(t, func(c *Config) { c.Services = fakeServices{unread: true} })
	p := simplePod(nil)
	if _, err := b.Env(t.Context(), b.startOf(p, pod.Sandbox{})); err == nil ||
		!strings.Contains(err.Error(), "services have not yet been read at least once") {
		t.Errorf("a pod of the API server does not wait: %v", err)
	}
	p.Annotations = map[string]string{pod.AnnotationConfigSource: "file"}
	if _, err := b.Env(t.Context(), b.startOf(p, pod.Sandbox{})); err != nil {
		t.Errorf("a static pod waits: %v", err)
	}
}

func TestServiceEnv(t *testing.T) {
	parity.Proves(t, "LIFE-81", "LIFE-82")
	parity.ProvesPart(t, 2, "LIFE-83")
	api := service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443})
	all := []*v1.Service{
		api,
		service("default", "else", "10.96.0.2", v1.ServicePort{Port: 1}),
		service("ns", "my-db", "fd00::1", v1.ServicePort{
			Name: "sql-x",
			Port: 5432,
		}, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP}),
		service("ns", "headless", "None", v1.ServicePort{Port: 80}),
		service("ns", "nameless", ""),
		service("ns", "portless", "10.96.0.3"),
	}
	const kubernetes = "KUBERNETES_SERVICE_HOST=10.96.0.1 KUBERNETES_SERVICE_PORT=443 " +
		"KUBERNETES_SERVICE_PORT_HTTPS=443 KUBERNETES_PORT=tcp://10.96.0.1:443 " +
		"KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443 KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_PORT_443_TCP_PORT=443 " +
		"KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1"
	const db = "MY_DB_SERVICE_HOST=fd00::1 MY_DB_SERVICE_PORT=5432 MY_DB_SERVICE_PORT_SQL_X=5432 " +
		"MY_DB_SERVICE_PORT_DNS=53 MY_DB_PORT=tcp://[fd00::1]:5432 " +
		"MY_DB_PORT_5432_TCP=tcp://[fd00::1]:5432 MY_DB_PORT_5432_TCP_PROTO=tcp MY_DB_PORT_5432_TCP_PORT=5432 " +
		"MY_DB_PORT_5432_TCP_ADDR=fd00::1 " +
		"MY_DB_PORT_53_UDP=udp://[fd00::1]:53 MY_DB_PORT_53_UDP_PROTO=udp MY_DB_PORT_53_UDP_PORT=53 " +
		"MY_DB_PORT_53_UDP_ADDR=fd00::1"
	own := service("ns", "kubernetes", "10.96.0.9", v1.ServicePort{Port: 80})
	for _, tc := range []struct {
		name     string
		services []*v1.Service
		links    *bool
		env      []v1.EnvVar
		from     map[string]string
		want     string
	}{
		{name: "those of the namespace, and the API server's", services: all, want: kubernetes + " " + db},
		{name: "only the API server's", services: all, links: ptr.To(false), want: kubernetes},
		{
			name:     "a service named kubernetes in the namespace",
			services: []*v1.Service{api, own},
			want: "KUBERNETES_SERVICE_HOST=10.96.0.9 KUBERNETES_SERVICE_PORT=80 KUBERNETES_PORT=tcp://10.96.0.9:80 " +
				"KUBERNETES_PORT_80_TCP=tcp://10.96.0.9:80 KUBERNETES_PORT_80_TCP_PROTO=tcp KUBERNETES_PORT_80_TCP_PORT=80 " +
				"KUBERNETES_PORT_80_TCP_ADDR=10.96.0.9",
		},
		{
			name:     "the container's value takes precedence",
			services: all,
			links:    ptr.To(false),
			env:      []v1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "mine"}},
			want:     strings.Replace(kubernetes, "HOST=10.96.0.1", "HOST=mine", 1),
		},
		{
			name:     "and so does one from envFrom",
			services: all,
			links:    ptr.To(false),
			from:     map[string]string{"KUBERNETES_SERVICE_HOST": "its"},
			want:     strings.Replace(kubernetes, "HOST=10.96.0.1", "HOST=its", 1),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) {
				c.Services = fakeServices{all: tc.services}
				c.Objects = fakeObjects{maps: map[string]map[string]string{"ns/cm": tc.from}}
			})
			p := simplePod(func(c *v1.Container) {
				c.Env, c.EnvFrom = tc.env, []v1.EnvFromSource{fromMap("cm", "",
					false)}
			})
			p.Spec.EnableServiceLinks = tc.links
			env, err := b.Env(t.Context(), b.startOf(p, pod.Sandbox{}))
			if got := join(env); err != nil || got != tc.want {
				t.Errorf("got  %s %v\nwant %s", got, err, tc.want)
			}
		})
	}
}

func TestEnvFileValue(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-89")
	for _, tc := range []struct{ name, in, key, want string }{
		{"a value", "A='1'\nB='2'\n", "B", "2"},
		{"the first of a name", "A='1'\nA='2'", "A", "1"},
		{"no such key", "A='1'", "B", ""},
		{"nothing", "", "A", ""},
		{"comments and empty lines", "# A='0'\n\n   \n  # x\n  A='1'", "A", "1"},
		{"quoted text is literal", "A=' $X \"y\" # z\\n '", "A", ` $X "y" # z\n `},
		{"a value of several lines", "A='one\ntwo\n'\nB='3'", "A", "one\ntwo\n"},
		{"a key after a multi-line value", "A='one\ntwo\n'\nB='3'", "B", "3"},
		{"an equals sign in the value", "A='b=c'", "A", "b=c"},
		{"an empty value", "A=''", "A", ""},
		{"no value", "A=\nB='2'", "B", "! line 1"},
		{"no name", "='1'", "A", "! line 1"},
		{"white space before the equals sign", "A ='1'", "A", "! line 1"},
		{"lines that end in CR LF", "A='one\r\ntwo'\r\nB='3'\r\n", "A", "one\ntwo"},
		{"an open quote at the end", "A='1\n", "A", "! line 1"},
		{"white space is no value", "A= 'x'\nB='2'", "A", ""},
		{"a comment after the value", "A='1' # x", "A", "1"},
		{"no quotes", "A=1", "A", "! line 1"},
		{"other quotes", "\nA=\"1\"", "A", "! line 2"},
		{"an open quote", "A='1\nB='2", "C", "! line 2"},
		{"more after the quote", "A='1'2", "A", "! line 1"},
		{"a word", "A='x\ny'\nexport", "B", "! line 3"},
		{"a key before an invalid line", "A='1'\nB=2", "A", "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := envFileValue(tc.in, tc.key)
			if err != nil {
				got = "! " + err.Error()
			}
			if tc.want != got && !(strings.HasPrefix(tc.want, "!") && strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzEnvFileValue(f *testing.F) {
	f.Add("A='1'\n# c\nB='x\ny' # z\n", "B")
	f.Add("A= \nB", "A")
	f.Fuzz(func(t *testing.T, text, key string) {
		value, err := envFileValue(text, key)
		if value != "" && err != nil {
			t.Error("a value and an error")
		}
		if !strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), value) {
			t.Errorf("value %q is not in the file %q", value, text)
		}
		if strings.Contains(value, "'") {
			t.Errorf("value %q goes beyond its quotes", value)
		}
	})
}

func TestEnvFileStaysInVolume(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-89")
	b := newBench(t, nil)
	dir := filepath.Join(b.root, "pods", "uid-1", "volumes", "kubernetes.io~empty-dir", "v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(b.root, "secret")
	for file, text := range map[string]string{
		filepath.Join(dir, "ok"):  "K='yes'\nE=''\n",
		filepath.Join(dir, "bad"): "K=yes\n",
		outside:                   "K='stolen'\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("ok", filepath.Join(dir, "inside")),
		os.Symlink(outside, filepath.Join(dir, "link")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path, volume, key string
		optional          bool
		want              string
	}{
		{path: "ok", volume: "v", key: "K", want: "X=yes"},
		{path: "inside", volume: "v", key: "K", want: "X=yes"},
		{path: "link", volume: "v", key: "K", want: "couldn't parse env file"},
		{path: "../../../../../secret", volume: "v", key: "K", want: "couldn't parse env file"},
		{path: "pipe", volume: "v", key: "K", want: "couldn't parse env file"},
		{path: "bad", volume: "v", key: "K", want: "couldn't parse env file"},
		{path: "ok", volume: "h", key: "K", want: `cannot find the volume "h" referenced by FileKeyRef`},
		{path: "no", volume: "v", key: "K", want: "couldn't parse env file"},
		{
			path:   "ok",
			volume: "v",
			key:    "L",
			want:   `environment variable key "L" not found in file "` + filepath.Join(dir, "ok") + `"`,
		},
		{
			path:   "ok",
			volume: "v",
			key:    "E",
			want:   `environment variable key "E" not found in file "` + filepath.Join(dir, "ok") + `"`,
		},
		{path: "ok", volume: "v", key: "E", optional: true, want: ""},
		{path: "ok", volume: "v", key: "L", optional: true, want: ""},
		{path: "no", volume: "v", key: "K", optional: true, want: ""},
	} {
		t.Run(tc.path+" "+tc.volume+" "+tc.key, func(t *testing.T) {
			b.cfg.Services = nil
			p := simplePod(func(c *v1.Container) {
				c.Env = []v1.EnvVar{
					{
						Name: "X",
						ValueFrom: &v1.EnvVarSource{
							FileKeyRef: &v1.FileKeySelector{
								VolumeName: tc.volume,
								Path:       tc.path,
								Key:        tc.key,
								Optional:   &tc.optional,
							},
						},
					},
				}
			})
			p.Spec.Volumes = []v1.Volume{
				{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}},
			}
			env, err := b.Env(t.Context(), b.startOf(p, pod.Sandbox{}))
			got := join(env)
			if err != nil {
				got = cri.Message(err)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A reference to the host IP cannot be resolved before the cloud controller manager has set it.
func TestEnvWithoutHostIP(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Node = func() NodeFacts {
			return NodeFacts{Name: "node1", Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node1"}}}
		}
	})
	for _, path := range []string{"status.hostIP", "status.hostIPs"} {
		p := simplePod(func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "H", ValueFrom: field(path)}} })
		if env, err := b.Env(t.Context(), b.startOf(p, pod.Sandbox{})); err == nil ||
			err.Error() != "host IP unknown; known addresses: [{Hostname node1}]" {
			t.Errorf("%s: %v, %v", path, env, err)
		}
	}
}
