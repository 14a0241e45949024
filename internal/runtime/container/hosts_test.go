package container

import (
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestPodHosts(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-70")
	parity.ProvesPart(t, 2, "LIFE-68")
	const head = "# Kubernetes-managed hosts file.\n" +
		"127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n"
	aliases := []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}, {IP: "5.6.7.8", Hostnames: []string{"c"}}}
	for _, tc := range []struct {
		name    string
		ips     []string
		names   names
		aliases []v1.HostAlias
		want    string
	}{
		{name: "one address", ips: []string{"10.0.0.5"}, names: names{host: "web"}, want: head + "10.0.0.5\tweb\n"},
		{
			name:  "a domain",
			ips:   []string{"10.0.0.5"},
			names: names{"web", "sub.ns.svc.cluster.local"},
			want:  head + "10.0.0.5\tweb.sub.ns.svc.cluster.local\tweb\n",
		},
		{
			name:  "two families",
			ips:   []string{"10.0.0.5", "fd00::5"},
			names: names{host: "web"},
			want:  head + "10.0.0.5\tweb\nfd00::5\tweb\n",
		},
		{
			name:    "aliases",
			ips:     []string{"10.0.0.5"},
			names:   names{host: "web"},
			aliases: aliases,
			want:    head + "10.0.0.5\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n5.6.7.8\tc\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := podHosts(tc.ips, tc.names, tc.aliases); got != tc.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
	if got, want := nodeHosts("127.0.0.1 me\n",
		aliases[1:]), "# Kubernetes-managed hosts file (host network).\n127.0.0.1 me\n\n# Entries added by "+
		"HostAliases.\n5.6.7.8\tc\n"; got != want {
		t.Errorf("host network: got:\n%s\nwant:\n%s", got, want)
	}
}

// startMounts starts the pod's container and returns its mounts.
func startMounts(t *testing.T, b bench, s Start) map[string]string {
	t.Helper()
	if _, failure := b.StartContainer(t.Context(), s); failure != nil {
		t.Fatal(failure)
	}
	out := map[string]string{}
	for _, p := range b.runtime.Pods() {
		for _, c := range p.Containers {
			for _, m := range c.Config.Mounts {
				out[m.ContainerPath] = m.HostPath
			}
		}
	}
	return out
}

func TestHostsFileOfAPod(t *testing.T) {
	parity.Proves(t, "LIFE-69", "LIFE-71")
	parity.ProvesPart(t, 2, "LIFE-70")
	parity.ProvesPart(t, 2, "LIFE-68")
	b := newBench(t, nil)
	p := simplePod(nil)
	file := startMounts(t, b, b.startOf(p, b.run(t, p)))["/etc/hosts"]
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasSuffix(string(text), "10.88.0.2\tweb\n") {
		t.Errorf("hosts file %q, %v", text, err)
	}
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o644 {
		t.Errorf("hosts file is %v, %v; want mode 0644", i, err)
	}
	if want := b.root + "/pods/uid-1/etc-hosts"; file != want {
		t.Errorf("hosts file at %s, want %s", file, want)
	}

	t.Run("is not truncated when another container starts", func(t *testing.T) {
		long := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		written := func() (string, bool) {
			t.Helper()
			now, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fi, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			anew := !fi.ModTime().Equal(long)
			if err := os.Chtimes(file, long, long); err != nil {
				t.Fatal(err)
			}
			return string(now), anew
		}
		written()
		s := b.startOf(p, pod.Sandbox{ID: b.runtime.Pods()[0].Sandbox.Id, Ready: true})
		s.Attempt = 1
		startMounts(t, b, s)
		if now, anew := written(); anew || now != string(text) {
			t.Errorf("rewritten: %v, %q", anew, now)
		}
		if err := os.WriteFile(file, []byte(strings.ToUpper(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
		s.Attempt = 2
		startMounts(t, b, s)
		if now, anew := written(); !anew || now != string(text) {
			t.Errorf("what a container wrote there stays: %v, %q", anew, now)
		}
	})
	t.Run("on the host's network", func(t *testing.T) {
		b := newBench(t, nil)
		p := simplePod(nil)
		p.Spec.HostNetwork = true
		s := b.startOf(p, b.run(t, p))
		s.PodIPs = nil
		text, err := os.ReadFile(startMounts(t, b, s)["/etc/hosts"])
		if err != nil {
			t.Fatal(err)
		}
		node, err := os.ReadFile("/etc/hosts")
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != "# Kubernetes-managed hosts file (host network).\n"+string(node) {
			t.Errorf("hosts file %q is not the node's %q", text, node)
		}
	})
	t.Run("with aliases", func(t *testing.T) {
		for _, host := range []bool{false, true} {
			b := newBench(t, nil)
			p := simplePod(nil)
			p.Spec.HostNetwork = host
			p.Spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}}
			text, err := os.ReadFile(startMounts(t, b, b.startOf(p, b.run(t, p)))["/etc/hosts"])
			if err != nil || !strings.HasSuffix(string(text), "\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n") {
				t.Errorf("on the host's network %v: hosts file %q, %v", host, text, err)
			}
		}
	})
	t.Run("on the host's network, before the node has an address", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.Node = func() NodeFacts { return NodeFacts{} } })
		p := simplePod(nil)
		p.Spec.HostNetwork = true
		s := b.startOf(p, b.run(t, p))
		s.PodIPs = nil
		if _, ok := startMounts(t, b, s)["/etc/hosts"]; !ok {
			t.Error("none is mounted")
		}
	})
	t.Run("not mounted without a pod IP", func(t *testing.T) {
		b := newBench(t, nil)
		p := simplePod(nil)
		s := b.startOf(p, b.run(t, p))
		s.PodIPs = nil
		if file, ok := startMounts(t, b, s)["/etc/hosts"]; ok {
			t.Errorf("mounted %s", file)
		}
	})
	t.Run("none over a volume of the container", func(t *testing.T) {
		b := newBench(t, nil)
		p := simplePod(
			func(c *v1.Container) { c.VolumeMounts = []v1.VolumeMount{{Name: "h", MountPath: "/etc/hosts"}} },
		)
		s := b.startOf(p, b.run(t, p))
		s.Mounts = func(func(string) (string, error)) (pod.Contribution, error) {
			return pod.Contribution{Mounts: []pod.Mount{{HostPath: "/mine", ContainerPath: "/etc/hosts"}}}, nil
		}
		if got := startMounts(t, b, s)["/etc/hosts"]; got != "/mine" {
			t.Errorf("mounted %s over the volume", got)
		}
	})
}
