package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

func securityOf(p *v1.Pod, in securityInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	in.pod, in.container = p, &p.Spec.Containers[0]
	in.identity = effectiveIdentity(p, in.container)
	in.masked = []string{"/masked"}
	in.seccompRoot = "/base/seccomp"
	return containerSecurity(in)
}

func TestContainerSecurity(t *testing.T) {
	parity.Proves(t, "LIFE-106", "LIFE-109")
	parity.ProvesPart(t, 2, "LIFE-107")
	parity.ProvesPart(t, 3, "LIFE-108")
	parity.ProvesPart(t, 2, "LIFE-111")
	parity.ProvesPart(t, 4, "LIFE-114")
	type sc = runtimeapi.LinuxContainerSecurityContext
	// plain is the security context of a container that specifies nothing.
	plain := func(change func(*sc)) *sc {
		s := &sc{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			MaskedPaths:      []string{"/masked"},
			ReadonlyPaths:    readonlyPaths,
		}
		if change != nil {
			change(s)
		}
		return s
	}
	num := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	for _, tc := range []struct {
		name string
		spec v1.PodSpec
		sc   *v1.SecurityContext
		in   securityInput
		want *sc
	}{
		{name: "no resources or settings", want: plain(nil)},
		{
			name: "the image's number",
			in:   securityInput{image: imageUser{uid: ptr.To[int64](5)}},
			want: plain(func(s *sc) { s.RunAsUser = num(5) }),
		},
		{
			name: "the image's name",
			in:   securityInput{image: imageUser{name: "www"}},
			want: plain(func(s *sc) { s.RunAsUsername = "www" }),
		},
		{
			name: "the pod's user and groups",
			in:   securityInput{groups: []int64{7}},
			spec: v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{
					RunAsUser:                ptr.To[int64](1),
					RunAsGroup:               ptr.To[int64](2),
					FSGroup:                  ptr.To[int64](3),
					SupplementalGroups:       []int64{4, 5},
					SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict),
				},
			},
			want: plain(func(s *sc) {
				s.RunAsUser, s.RunAsGroup, s.SupplementalGroups = num(1), num(2), []int64{3, 4, 5, 7}
				s.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			}),
		},
		{
			name: "the container overrides the pod",
			spec: v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{
					RunAsUser:      ptr.To[int64](1),
					RunAsGroup:     ptr.To[int64](2),
					SELinuxOptions: &v1.SELinuxOptions{Level: "s0"},
				},
			},
			sc: &v1.SecurityContext{
				RunAsUser:      ptr.To[int64](9),
				SELinuxOptions: &v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s1"},
			},
			want: plain(func(s *sc) {
				s.RunAsUser, s.RunAsGroup = num(9), num(2)
				s.SelinuxOptions = &runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s1"}
			}),
		},
		{
			name: "labels are not merged",
			spec: v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{User: "u", Level: "s0"}},
			},
			sc:   &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Type: "t"}},
			want: plain(func(s *sc) { s.SelinuxOptions = &runtimeapi.SELinuxOption{Type: "t"} }),
		},
		{
			name: "of groups and profiles, too",
			spec: v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{
					RunAsUser:       ptr.To[int64](1),
					RunAsGroup:      ptr.To[int64](2),
					SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
					AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined},
				},
			},
			sc: &v1.SecurityContext{
				RunAsGroup:      ptr.To[int64](8),
				SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault},
			},
			want: plain(func(s *sc) {
				s.RunAsUser, s.RunAsGroup = num(1), num(8)
				s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
				s.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
				//lint:ignore SA1019 for runtimes that do not know its successor
				s.ApparmorProfile = "runtime/default"
			}),
		},
		{
			name: "runAsGroup with the image's user",
			in:   securityInput{image: imageUser{uid: ptr.To[int64](5)}},
			spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{
				RunAsGroup:               ptr.To[int64](2),
				SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyMerge),
			}},
			want: plain(func(s *sc) {
				s.RunAsUser, s.RunAsGroup = num(5), num(2)
				s.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Merge
			}),
		},
		{
			name: "rights",
			sc: &v1.SecurityContext{
				Privileged:             ptr.To(true),
				ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &v1.Capabilities{
					Add:  []v1.Capability{"NET_ADMIN"},
					Drop: []v1.Capability{"ALL"},
				},
			},
			want: plain(func(s *sc) {
				s.Privileged, s.ReadonlyRootfs = true, true
				s.Capabilities = &runtimeapi.Capability{
					AddCapabilities:  []string{"NET_ADMIN"},
					DropCapabilities: []string{"ALL"},
				}
			}),
		},
		{
			name: "no new rights",
			sc:   &v1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)},
			want: plain(func(s *sc) { s.NoNewPrivs = true }),
		},
		{
			name: "privilege escalation allowed",
			sc:   &v1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true)},
			want: plain(nil),
		},
		{name: "default proc mount", sc: &v1.SecurityContext{ProcMount: ptr.To(v1.DefaultProcMount)}, want: plain(nil)},
		{
			name: "proc unmasked",
			sc:   &v1.SecurityContext{ProcMount: ptr.To(v1.UnmaskedProcMount)},
			want: plain(func(s *sc) { s.MaskedPaths, s.ReadonlyPaths = nil, nil }),
		},
		{
			name: "the host's namespaces",
			spec: v1.PodSpec{HostNetwork: true, HostPID: true, HostIPC: true},
			want: plain(func(s *sc) {
				s.NamespaceOptions = &runtimeapi.NamespaceOption{
					Network: runtimeapi.NamespaceMode_NODE,
					Pid:     runtimeapi.NamespaceMode_NODE,
					Ipc:     runtimeapi.NamespaceMode_NODE,
				}
			}),
		},
		{
			name: "processes shared in the pod",
			spec: v1.PodSpec{ShareProcessNamespace: ptr.To(true)},
			want: plain(func(s *sc) { s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD }),
		},
		{
			name: "processes of another container",
			in:   securityInput{targetID: "c1"},
			want: plain(func(s *sc) {
				s.NamespaceOptions.Pid, s.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, "c1"
			}),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: tc.spec}
			p.Spec.Containers = []v1.Container{{SecurityContext: tc.sc}}
			got, err := securityOf(p, tc.in)
			if err != nil || !proto.Equal(got, tc.want) {
				t.Errorf("got  %s %v\nwant %s", prototext.Format(got), err, prototext.Format(tc.want))
			}
		})
	}
}

// runAsNonRoot of a container takes precedence over that of the pod.
func TestEffectiveRunAsNonRoot(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-107")
	for _, tc := range []struct {
		pod, container *bool
		want           bool
	}{
		{nil, nil, false},
		{ptr.To(true), nil, true},
		{ptr.To(true), ptr.To(false), false},
		{ptr.To(false), ptr.To(true), true},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{
			SecurityContext: &v1.PodSecurityContext{RunAsNonRoot: tc.pod},
			Containers:      []v1.Container{{SecurityContext: &v1.SecurityContext{RunAsNonRoot: tc.container}}},
		}}
		if id := effectiveIdentity(p, &p.Spec.Containers[0]); ptr.Deref(id.nonRoot, false) != tc.want {
			t.Errorf("pod %v, container %v: %v", tc.pod, tc.container, id.nonRoot)
		}
	}
}

func TestSeccomp(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-112")
	runtimeDefault := &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
	local := func(s string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &s}
	}
	for _, tc := range []struct {
		name           string
		pod, container *v1.SeccompProfile
		byDefault      bool
		want           string // the profile as text, or an error
	}{
		{"no profile is unconfined", nil, nil, false, "profile_type:Unconfined"},
		{"no profile with the node's default", nil, nil, true, "profile_type:RuntimeDefault"},
		{"the pod's", runtimeDefault, nil, false, "profile_type:RuntimeDefault"},
		{
			"the container's",
			runtimeDefault,
			&v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
			true,
			"profile_type:Unconfined",
		},
		{
			"one of the node's files",
			nil,
			local("a/b.json"),
			false,
			`profile_type:Localhost localhost_ref:"/base/seccomp/a/b.json"`,
		},
		{"not any file", nil, local("../b.json"), false, "not inside"},
		{
			"a file must be named",
			nil,
			&v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost},
			false,
			"localhostProfile must be set if seccompProfile type is Localhost.",
		},
		{"an unknown kind", nil, &v1.SeccompProfile{Type: "Odd"}, false, "invalid seccomp profile type"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{
				Spec: v1.PodSpec{
					SecurityContext: &v1.PodSecurityContext{SeccompProfile: tc.pod},
					Containers: []v1.Container{
						{SecurityContext: &v1.SecurityContext{SeccompProfile: tc.container}},
					},
				},
			}
			got, err := securityOf(p, securityInput{seccompDefault: tc.byDefault})
			check(t, got.GetSeccomp(), err, tc.want)
		})
	}
}

func TestAppArmor(t *testing.T) {
	parity.Proves(t, "LIFE-113")
	local := func(s string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &s}
	}
	for _, tc := range []struct {
		name           string
		pod, container *v1.AppArmorProfile
		annotation     string
		want, legacy   string
	}{
		{name: "nothing"},
		{
			name:   "the pod's",
			pod:    &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault},
			want:   "profile_type:RuntimeDefault",
			legacy: "runtime/default",
		},
		{
			name:       "the container's first",
			pod:        local("x"),
			container:  &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined},
			annotation: "runtime/default",
			want:       "profile_type:Unconfined",
			legacy:     "unconfined",
		},
		{
			name:       "the annotation before the pod's",
			pod:        local("x"),
			annotation: "localhost/y",
			want:       `profile_type:Localhost localhost_ref:"y"`,
			legacy:     "localhost/y",
		},
		{
			name:       "the annotation's default",
			annotation: "runtime/default",
			want:       "profile_type:RuntimeDefault",
			legacy:     "runtime/default",
		},
		{name: "the annotation's none", annotation: "unconfined", want: "profile_type:Unconfined", legacy: "unconfined"},
		{
			name:       "an annotation that cannot be read leaves the pod's",
			pod:        local("x"),
			annotation: "enforce",
			want:       `profile_type:Localhost localhost_ref:"x"`,
			legacy:     "localhost/x",
		},
		{
			name:       "the annotation must name a profile",
			annotation: "localhost/",
			want:       "missing localhost apparmor profile name",
		},
		{name: "a profile must be named", container: local(""), want: "missing localhost apparmor profile name"},
		{
			name:      "an unknown kind",
			container: &v1.AppArmorProfile{Type: "Odd"},
			want:      "unknown apparmor profile type: \"Odd\"",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{
				Spec: v1.PodSpec{
					SecurityContext: &v1.PodSecurityContext{AppArmorProfile: tc.pod},
					Containers: []v1.Container{
						{Name: "main", SecurityContext: &v1.SecurityContext{AppArmorProfile: tc.container}},
					},
				},
			}
			if tc.annotation != "" {
				p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/main": tc.annotation}
			}
			got, err := securityOf(p, securityInput{})
			check(t, got.GetApparmor(), err, tc.want)
			//lint:ignore SA1019 for runtimes that do not know its successor
			if legacy := got.GetApparmorProfile(); legacy != tc.legacy {
				t.Errorf("older field %q, want %q", legacy, tc.legacy)
			}
		})
	}
}

func check(t *testing.T, got *runtimeapi.SecurityProfile, err error, want string) {
	t.Helper()
	text := ""
	if got != nil {
		text = strings.Join(strings.Fields("profile_type:"+got.ProfileType.String()), "")
		if got.LocalhostRef != "" {
			text += ` localhost_ref:"` + got.LocalhostRef + `"`
		}
	}
	if err != nil {
		text = err.Error()
	}
	if want == "" && text != "" || !strings.Contains(text, want) {
		t.Errorf("got %q, want %q", text, want)
	}
}

func TestCheckNonRoot(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-110")
	yes := ptr.To(true)
	root, user := ptr.To[int64](0), ptr.To[int64](1000)
	for _, tc := range []struct {
		name  string
		id    identity
		image imageUser
		want  string
	}{
		{"runAsNonRoot is not set", identity{}, imageUser{uid: root}, ""},
		{"runAsNonRoot false", identity{nonRoot: ptr.To(false)}, imageUser{uid: root}, ""},
		{"a user that is not root", identity{nonRoot: yes, user: user}, imageUser{uid: root}, ""},
		{
			"runAsUser root",
			identity{nonRoot: yes, user: root},
			imageUser{uid: user},
			`container's runAsUser breaks non-root policy (pod: "web_ns(uid-1)", container: main)`,
		},
		{"an image's user", identity{nonRoot: yes}, imageUser{uid: user}, ""},
		{
			"an image of root",
			identity{nonRoot: yes},
			imageUser{uid: root},
			`container has runAsNonRoot and image will run as root (pod: "web_ns(uid-1)", container: main)`,
		},
		{
			"an image with a user name",
			identity{nonRoot: yes},
			imageUser{name: "www"},
			`container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root (pod: ` +
				`"web_ns(uid-1)", container: main)`,
		},
		{
			"an image with a UID that is too large",
			identity{nonRoot: yes},
			imageUser{uid: ptr.To[int64](4294967296)},
			`container has runAsNonRoot and image has an invalid user id (4294967296). (Must be 1-(2147483647)): must be ` +
				`between 0 and 2147483647, inclusive (pod: "web_ns(uid-1)", container: main)`,
		},
		{
			"an image with a negative UID",
			identity{nonRoot: yes},
			imageUser{uid: ptr.To[int64](-1)},
			`container has runAsNonRoot and image has an invalid user id (-1). (Must be 1-(2147483647)): must be between 0 ` +
				`and 2147483647, inclusive (pod: "web_ns(uid-1)", container: main)`,
		},
		{"the last that can be", identity{nonRoot: yes}, imageUser{uid: ptr.To[int64](2147483647)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := simplePod(nil)
			got := ""
			if err := checkNonRoot(p, &p.Spec.Containers[0], tc.id, tc.image); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSandboxSecurity(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-112")
	parity.ProvesPart(t, 2, "LIFE-115")
	p := simplePod(func(c *v1.Container) { c.SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true)} })
	p.Spec.SecurityContext = &v1.PodSecurityContext{
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
		SELinuxOptions: &v1.SELinuxOptions{Level: "s0"},
		Sysctls: []v1.Sysctl{
			{Name: "kernel/shm_rmid_forced", Value: "1"},
			{Name: "net.ipv4.conf.eno2/100.rp_filter", Value: "0"},
			{Name: "net/ipv4/conf/eno2.100/rp_filter", Value: "2"},
		},
	}
	got := sandboxConfig(sandboxInput{pod: p, groups: []int64{7}}).Linux
	sc := got.SecurityContext
	if sc.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("the sandbox runs with %v", sc.Seccomp)
	}
	if !sc.Privileged || sc.SelinuxOptions.GetLevel() != "s0" || !slices.Equal(sc.SupplementalGroups, []int64{7}) {
		t.Errorf("security context %v", sc)
	}
	if want := map[string]string{
		"kernel.shm_rmid_forced":           "1",
		"net.ipv4.conf.eno2/100.rp_filter": "2",
	}; len(got.Sysctls) != len(want) || got.Sysctls["kernel.shm_rmid_forced"] != "1" ||
		got.Sysctls["net.ipv4.conf.eno2/100.rp_filter"] != "2" {
		t.Errorf("sysctls %v, want %v", got.Sysctls, want)
	}
	if p.Spec.Containers[0].SecurityContext = nil; sandboxConfig(
		sandboxInput{pod: p}).Linux.SecurityContext.Privileged {
		t.Error("the sandbox is privileged without a privileged container")
	}
}

func TestMaskedPathsThermalThrottle(t *testing.T) {
	root := t.TempDir()
	before := maskedPaths(root)
	if err := os.MkdirAll(filepath.Join(root, "sys/devices/system/cpu/cpu0/thermal_throttle"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "sys/devices/system/cpu/cpu1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := maskedPaths(root), append(before,
		"/sys/devices/system/cpu/cpu0/thermal_throttle"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
