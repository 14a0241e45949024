package container

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

func TestPodDNS(t *testing.T) {
	parity.Proves(t, "LIFE-72", "LIFE-73", "LIFE-76")
	parity.ProvesPart(t, 2, "LIFE-74")
	parity.ProvesPart(t, 3, "LIFE-75")
	host := resolvConf{
		Servers:  []string{"1.1.1.1"},
		Searches: []string{"example", "cluster.local"},
		Options:  []string{"rotate", "ndots:1"},
	}
	cluster := DNSConfig{
		ClusterDNS:    []string{"10.96.0.10"},
		ClusterDomain: "cluster.local",
		ResolvConf:    "/etc/resolv.conf",
	}
	inCluster := resolvConf{
		Servers:  []string{"10.96.0.10"},
		Searches: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example"},
		Options:  []string{"ndots:5"},
	}
	for _, tc := range []struct {
		name    string
		spec    v1.PodSpec
		cfg     DNSConfig
		nodeIPs string
		want    resolvConf
		warns   []string
	}{
		{
			name: "cluster first: the host's domains come last, its options not at all",
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			cfg:  cluster,
			want: inCluster,
		},
		{
			name: "cluster first on the host's network is the host's",
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, HostNetwork: true},
			cfg:  cluster,
			want: host,
		},
		{
			name: "cluster first with host network is the cluster's",
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirstWithHostNet, HostNetwork: true},
			cfg:  cluster,
			want: inCluster,
		},
		{name: "no policy is cluster first", cfg: cluster, want: inCluster},
		{name: "default is the host's", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, cfg: cluster, want: host},
		{
			name: "without a cluster domain only the host's are searched",
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			cfg:  DNSConfig{ClusterDNS: []string{"10.96.0.10"}, ResolvConf: "x"},
			want: resolvConf{Servers: []string{"10.96.0.10"}, Searches: host.Searches, Options: []string{"ndots:5"}},
		},
		{
			name: "without cluster servers cluster first is the host's, with a warning",
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			cfg:  DNSConfig{ResolvConf: "x"},
			want: host,
			warns: []string{`MissingClusterDNS true kubelet does not have ClusterDNS IP configured and cannot create Pod ` +
				`using "ClusterFirst" policy. Falling back to "Default" policy.`},
		},
		{
			name: "no host file: the node itself",
			spec: v1.PodSpec{DNSPolicy: v1.DNSDefault},
			want: resolvConf{Servers: []string{"127.0.0.1"}, Searches: []string{"."}},
		},
		{
			name:    "no host file: in the families of --node-ip",
			spec:    v1.PodSpec{DNSPolicy: v1.DNSDefault},
			nodeIPs: "2001:db8::1 192.0.2.1",
			want:    resolvConf{Servers: []string{"::1", "127.0.0.1"}, Searches: []string{"."}},
		},
		{
			name: "none: the pod's dnsConfig",
			cfg:  cluster,
			spec: v1.PodSpec{
				DNSPolicy: v1.DNSNone,
				DNSConfig: &v1.PodDNSConfig{
					Nameservers: []string{"9.9.9.9", "9.9.9.9"},
					Searches:    []string{"a"},
					Options:     []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("3")}, {Name: "edns0"}},
				},
			},
			want: resolvConf{
				Servers:  []string{"9.9.9.9"},
				Searches: []string{"a"},
				Options:  []string{"ndots:3", "edns0"},
			},
		},
		{
			name: "dnsConfig is merged, its options take precedence",
			cfg:  cluster,
			spec: v1.PodSpec{
				DNSPolicy: v1.DNSClusterFirst,
				DNSConfig: &v1.PodDNSConfig{
					Nameservers: []string{"10.96.0.10", "9.9.9.9"},
					Searches:    []string{"example", "more"},
					Options:     []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}, {Name: "debug"}},
				},
			},
			want: resolvConf{
				Servers:  []string{"10.96.0.10", "9.9.9.9"},
				Searches: append(slices.Clone(inCluster.Searches), "more"),
				Options:  []string{"ndots:2", "debug"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tc.spec}
			for _, ip := range strings.Fields(tc.nodeIPs) {
				tc.cfg.NodeIPs = append(tc.cfg.NodeIPs, netip.MustParseAddr(ip))
			}
			got, ws, err := podDNS(p, tc.cfg, func() (resolvConf, error) { return host, nil })
			if err != nil || !equalConf(got, tc.want) {
				t.Errorf("got %q, %v\nwant %q", got, err, tc.want)
			}
			var warns []string
			for _, w := range ws {
				warns = append(warns, fmt.Sprint(w.reason, " ", w.node, " ", w.message))
			}
			if !slices.Equal(warns, tc.warns) {
				t.Errorf("warnings %q, want %q", warns, tc.warns)
			}
		})
	}
}

func TestPodDNSHostFileUnreadable(t *testing.T) {
	broken := func() (resolvConf, error) { return resolvConf{}, errors.New("no such file") }
	for _, policy := range []v1.DNSPolicy{v1.DNSClusterFirst, v1.DNSDefault} {
		p := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: policy}}
		if _, _, err := podDNS(p, DNSConfig{ClusterDNS: []string{"10.96.0.10"}, ResolvConf: "x"}, broken); err == nil {
			t.Errorf("%s: no error for a host file that cannot be read", policy)
		}
	}
	if _, _, err := podDNS(&v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSNone}}, DNSConfig{}, broken); err != nil {
		t.Errorf("None reads the host's file: %v", err)
	}
}

// An unknown policy, which the API server should have rejected, counts as ClusterFirst.
func TestUnknownDNSPolicy(t *testing.T) {
	host := func() (resolvConf, error) { return resolvConf{Servers: []string{"192.0.2.1"}}, nil }
	p := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: "Sometimes", HostNetwork: true}}
	got, warned, err := podDNS(p, DNSConfig{ClusterDNS: []string{"10.96.0.10"}, ResolvConf: "x"}, host)
	if err != nil || len(warned) > 0 || !slices.Equal(got.Servers, []string{"10.96.0.10"}) {
		t.Errorf("%+v, %v, %v, want the servers of the cluster", got, warned, err)
	}
}

func TestFitDNSLimits(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-77")
	many := func(n, length int) []string {
		var out []string
		for i := range n {
			s := fmt.Sprintf("d%d", i)
			out = append(out, s+strings.Repeat("x", length-len(s)))
		}
		return out
	}
	for _, tc := range []struct {
		name              string
		servers, searches []string
		wantServers       int
		wantSearches      []string
		warns             []string
	}{
		{name: "all fits", servers: many(3, 4), searches: many(32, 10), wantServers: 3, wantSearches: many(32, 10)},
		{
			name:        "a fourth server is dropped",
			servers:     []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"},
			wantServers: 3,
			warns: []string{"Nameserver limits were exceeded, some nameservers have been omitted, the applied " +
				"nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3"},
		},
		{
			name:         "a 33rd domain is dropped",
			searches:     many(33, 10),
			wantSearches: many(32, 10),
			warns: []string{
				"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
					strings.Join(many(32, 10), " "),
			},
		},
		{
			name:         "a line of 2048 characters is fine",
			searches:     append(many(20, 99), strings.Repeat("y", 48)),
			wantSearches: append(many(20, 99), strings.Repeat("y", 48)),
		},
		{
			name:         "one of 2049 is not",
			searches:     append(many(20, 99), strings.Repeat("y", 49)),
			wantSearches: many(20, 99),
			warns: []string{
				"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
					strings.Join(many(20, 99), " "),
			},
		},
		{
			name:         "only a domain that is too long is dropped",
			searches:     []string{"a", strings.Repeat("x", 254), strings.Repeat("z", 253)},
			wantSearches: []string{"a", strings.Repeat("z", 253)},
			warns: []string{
				"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a " +
					strings.Repeat("z", 253),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ws := fitDNSLimits(resolvConf{Servers: tc.servers, Searches: tc.searches})
			if len(got.Servers) != tc.wantServers || !slices.Equal(got.Searches, tc.wantSearches) {
				t.Errorf("got %q", got)
			}
			var warns []string
			for _, w := range ws {
				if w.reason != "DNSConfigForming" || w.node {
					t.Errorf("warning %+v, want DNSConfigForming about the pod", w)
				}
				warns = append(warns, w.message)
			}
			if !slices.Equal(warns, tc.warns) {
				t.Errorf("warnings %q, want %q", warns, tc.warns)
			}
		})
	}
}

func TestDNSWarningEvents(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	parity.ProvesPart(t, 2, "LIFE-74")
	b := newBench(t, func(c *Config) { c.DNS.ClusterDNS = nil })
	p := simplePod(nil)
	s := b.run(t, p)
	if _, failure := b.StartContainer(t.Context(), b.startOf(p, s)); failure != nil {
		t.Fatal(failure)
	}
	const text = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. ` +
		`Falling back to "Default" policy.`
	want := []string{
		"node Warning MissingClusterDNS " + text,
		`web Warning MissingClusterDNS pod: "web_ns(uid-1)". ` + text,
		"web/main Normal Created Container created",
		"web/main Normal Started Container started",
	}
	if got := b.events.Lines(); !slices.Equal(got, want) {
		t.Errorf("events %q\nwant %q", got, want)
	}
}

// Without a file the families of --node-ip are used, not the node's addresses.
func TestDNSWithoutHostFile(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-75")
	for flag, want := range map[string]string{"": "[127.0.0.1] [.]", "2001:db8::1": "[::1] [.]"} {
		b := newBench(t, func(c *Config) {
			c.DNS = DNSConfig{}
			c.Node = func() NodeFacts { return NodeFacts{Name: "node1", HostIPs: []string{"2001:db8::1"}} }
			if flag != "" {
				c.DNS.NodeIPs = []netip.Addr{netip.MustParseAddr(flag)}
			}
		})
		p := simplePod(nil)
		p.Spec.DNSPolicy = v1.DNSDefault
		b.run(t, p)
		c := b.runtime.Pods()[0].Config.DnsConfig
		if got := fmt.Sprint(c.Servers, c.Searches); got != want {
			t.Errorf("--node-ip=%s: %s, want %s", flag, got, want)
		}
	}
}

// The limits apply to the configuration that is sent to the runtime.
func TestSandboxDNSLimits(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-77")
	file := filepath.Join(t.TempDir(), "resolv.conf")
	var searches []string
	for i := range 40 {
		searches = append(searches, fmt.Sprintf("d%02d", i))
	}
	text := "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch " + strings.Join(searches, " ") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for policy, first := range map[v1.DNSPolicy]string{
		v1.DNSDefault:      "d00",
		v1.DNSClusterFirst: "ns.svc.cluster.local",
	} {
		b := newBench(t, func(c *Config) { c.DNS.ResolvConf = file })
		p := simplePod(nil)
		p.Spec.DNSPolicy = policy
		p.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"198.51.100.1", "198.51.100.2", "198.51.100.3"}}
		b.run(t, p)
		got := b.runtime.Pods()[0].Config.DnsConfig
		if len(got.Servers) != 3 || len(got.Searches) != 32 || got.Searches[0] != first {
			t.Errorf("%s: %d servers and %d searches from %s on, want 3 and 32 from %s on",
				policy, len(got.Servers), len(got.Searches), got.Searches[0], first)
		}
		warnings := 0
		for _, line := range b.events.Lines() {
			if strings.HasPrefix(line, "web Warning DNSConfigForming ") {
				warnings++
			}
		}
		if warnings != 2 {
			t.Errorf("%s: events %q, want two warnings about the pod", policy, b.events.Lines())
		}
	}
}

func TestCheckHostDNS(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-78")
	for _, tc := range []struct {
		name, file, domain string
		want               string
	}{
		{name: "room enough", file: "search " + strings.Repeat("a ", 29), domain: "cluster.local"},
		{
			name:   "no room for the cluster's",
			file:   "search " + strings.Repeat("a ", 30),
			domain: "cluster.local",
			want: "node Warning CheckLimitsForResolvConf Resolv.conf file 'FILE' contains search line consisting of more " +
				"than 29 domains!",
		},
		{name: "more domains without a cluster domain", file: "search " + strings.Repeat("a ", 32)},
		{
			name: "though not without end",
			file: "search " + strings.Repeat("a ", 33),
			want: "node Warning CheckLimitsForResolvConf Resolv.conf file 'FILE' contains search line consisting of more " +
				"than 32 domains!",
		},
		{
			name:   "a line of 2048 characters",
			file:   "search " + strings.Repeat(strings.Repeat("x", 203)+" ", 10) + strings.Repeat("x", 8),
			domain: "cluster.local",
		},
		{
			name: "a long domain",
			file: "search " + strings.Repeat("x", 254),
			want: "node Warning CheckLimitsForResolvConf Resolv.conf file \"FILE\" contains a search path which length is " +
				"more than allowed 253 chars!",
		},
		{
			name:   "a long line",
			file:   "search " + strings.Repeat(strings.Repeat("x", 204)+" ", 10) + strings.Repeat("x", 9),
			domain: "cluster.local",
			want: "node Warning CheckLimitsForResolvConf Resolv.conf file 'FILE' contains search line which length is more " +
				"than allowed 2048 chars!",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(file, []byte(tc.file), 0o644); err != nil {
				t.Fatal(err)
			}
			b := newBench(t, func(c *Config) { c.DNS.ResolvConf, c.DNS.ClusterDomain = file, tc.domain })
			b.CheckHostDNS()
			if got := strings.ReplaceAll(strings.Join(b.events.Lines(), "\n"), file, "FILE"); got != tc.want {
				t.Errorf("events %q, want %q", got, tc.want)
			}
		})
	}
	b := newBench(t, func(c *Config) { c.DNS.ResolvConf = "/nonexistent/resolv.conf" })
	b.CheckHostDNS()
	if got := b.events.Lines(); len(got) != 1 || !strings.Contains(got[0], "no such file") {
		t.Errorf("a missing file: events %q, want one about it", got)
	}
	b = newBench(t, func(c *Config) { c.DNS.ResolvConf = "" })
	b.CheckHostDNS()
	if got := b.events.Lines(); len(got) != 0 {
		t.Errorf("no file configured: events %q, want none", got)
	}
}
