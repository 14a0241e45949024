package persistent

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// labelsByLevel are the labels of a policy with levels only. One is invalid.
func labelsByLevel(o *v1.SELinuxOptions) (string, error) {
	switch {
	case o == nil || o.Level == "":
		return "", nil
	case o.Level == "bad":
		return "", errors.New("no such level")
	}
	return "file:" + o.Level, nil
}

func level(l string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: l} }

// labelled returns a container that mounts the claim data.
func labelled(o *v1.SELinuxOptions, change func(*v1.Container)) v1.Container {
	c := v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}
	if o != nil {
		c.SecurityContext = &v1.SecurityContext{SELinuxOptions: o}
	}
	if change != nil {
		change(&c)
	}
	return c
}

func privileged(c *v1.Container) {
	if c.SecurityContext == nil {
		c.SecurityContext = &v1.SecurityContext{}
	}
	c.SecurityContext.Privileged = ptr.To(true)
}

func elsewhere(c *v1.Container) { c.VolumeMounts[0].Name = "other" }

func TestPodLabelOfClaim(t *testing.T) {
	for _, c := range []struct {
		name       string
		pod        *v1.SELinuxOptions
		policy     v1.PodSELinuxChangePolicy
		containers []v1.Container
		init       []v1.Container
		want       string
		err        string
	}{
		{name: "no options", containers: []v1.Container{labelled(nil, nil)}},
		{name: "options of the pod", pod: level("s0:c1"), containers: []v1.Container{labelled(nil, nil)}, want: "file:s0:c1"},
		{
			name:       "the container overrides the pod",
			pod:        level("s0:c1"),
			containers: []v1.Container{labelled(level("s0:c2"), nil)},
			want:       "file:s0:c2",
		},
		{
			name:       "options of a container replace the pod's",
			pod:        level("s0:c1"),
			containers: []v1.Container{labelled(&v1.SELinuxOptions{Type: "t"}, nil)},
		},
		{
			name:       "containers agree",
			containers: []v1.Container{labelled(level("s0:c1"), nil), labelled(level("s0:c1"), nil)},
			want:       "file:s0:c1",
		},
		{
			name:       "containers differ",
			containers: []v1.Container{labelled(level("s0:c1"), nil), labelled(level("s0:c2"), nil)},
			err:        "multiple SELinux labels found: file:s0:c1,file:s0:c2",
		},
		{
			name:       "one container without options",
			containers: []v1.Container{labelled(nil, nil), labelled(level("s0:c2"), nil)},
			want:       "file:s0:c2",
		},
		{
			name:       "one leaves it to the runtime",
			containers: []v1.Container{labelled(&v1.SELinuxOptions{Type: "t"}, nil), labelled(level("s0:c2"), nil)},
			err:        "multiple SELinux labels found: ,file:s0:c2",
		},
		{
			name:       "an init container is one of them",
			pod:        level("s0:c1"),
			init:       []v1.Container{labelled(level("s0:c2"), nil)},
			containers: []v1.Container{labelled(nil, nil)},
			err:        "multiple SELinux labels found: file:s0:c2,file:s0:c1",
		},
		{
			name:       "one that does not mount the volume is none of them",
			containers: []v1.Container{labelled(level("s0:c1"), nil), labelled(level("s0:c2"), elsewhere)},
			want:       "file:s0:c1",
		},
		{
			name:       "a privileged one is one of them",
			containers: []v1.Container{labelled(level("s0:c1"), privileged), labelled(level("s0:c2"), nil)},
			err:        "multiple SELinux labels found: file:s0:c1,file:s0:c2",
		},
		{
			name:       "all are privileged",
			pod:        level("s0:c1"),
			containers: []v1.Container{labelled(nil, privileged)},
			want:       "file:s0:c1",
		},
		{
			name:       "a pod that has it done file by file",
			pod:        level("s0:c1"),
			policy:     v1.SELinuxChangePolicyRecursive,
			containers: []v1.Container{labelled(nil, nil), labelled(level("bad"), nil)},
		},
		{
			name:       "a pod with explicit defaults",
			pod:        level("s0:c1"),
			policy:     v1.SELinuxChangePolicyMountOption,
			containers: []v1.Container{labelled(nil, nil)},
			want:       "file:s0:c1",
		},
		{
			name:       "a level that is none",
			pod:        level("bad"),
			containers: []v1.Container{labelled(nil, nil)},
			err: `failed to construct SELinux label from context "&SELinuxOptions{User:,Role:,Type:,Level:bad,}": no ` +
				`such level`,
		},
	} {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: v1.PodSpec{
				Containers:      c.containers,
				InitContainers:  c.init,
				SecurityContext: &v1.PodSecurityContext{SELinuxOptions: c.pod},
				Volumes: []v1.Volume{
					{
						Name: "v",
						VolumeSource: v1.VolumeSource{
							PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
						},
					},
					{Name: "other"},
				},
			},
		}
		if c.policy != "" {
			p.Spec.SecurityContext.SELinuxChangePolicy = &c.policy
		}
		got, err := labelOf(p, "data", labelsByLevel)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: %q, %v, want %q, %s", c.name, got, err, c.want, c.err)
		}
	}
}

// Two volumes of a pod may refer to the same claim.
func TestPodLabelOfClaimUsedTwice(t *testing.T) {
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	p := &v1.Pod{Spec: v1.PodSpec{
		Volumes:    []v1.Volume{{Name: "v", VolumeSource: claim}, {Name: "other", VolumeSource: claim}},
		Containers: []v1.Container{labelled(level("s0:c1"), nil), labelled(level("s0:c2"), elsewhere)},
	}}
	if _, err := labelOf(p, "data", labelsByLevel); err == nil ||
		!strings.Contains(err.Error(), "multiple SELinux labels found") {
		t.Errorf("its containers have the volume with both labels: %v", err)
	}
}

func TestLabelFor(t *testing.T) {
	for _, c := range []struct {
		name string
		have holding
		want string
		gets string
		ok   bool
	}{
		{"no holder", holding{}, "x", "x", true},
		{"no holder any more", holding{label: "y"}, "x", "x", true},
		{"another pod has it so", holding{others: true, label: "x"}, "x", "x", true},
		{"another pod has it otherwise", holding{others: true, label: "y"}, "x", "y", false},
		{"another pod has it without a label", holding{others: true}, "x", "", false},
		{"another pod has it with a label, and none is wanted", holding{others: true, label: "y"}, "", "y", false},
		{"the pod has it, and wants another label by now", holding{mine: true, label: "y"}, "x", "y", true},
		{"both have it", holding{mine: true, others: true, label: "y"}, "x", "y", true},
	} {
		if gets, ok := labelFor(c.have, c.want); gets != c.gets || ok != c.ok {
			t.Errorf("%s: %q, %v", c.name, gets, ok)
		}
	}
}

func TestAccessModeName(t *testing.T) {
	for _, c := range []struct {
		modes []v1.PersistentVolumeAccessMode
		want  string
	}{
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, "RWOP"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod, v1.ReadWriteOnce}, "RWO"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany}, "ROX"},
		{[]v1.PersistentVolumeAccessMode{v1.ReadOnlyMany, v1.ReadWriteMany}, "RWX"},
		{nil, ""},
	} {
		if got := modeName(Spec{
			PV: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{AccessModes: c.modes}},
		}); got != c.want {
			t.Errorf("%v is %q, want %q", c.modes, got, c.want)
		}
	}
}

// The label is quoted, so that the option has no other commas.
func TestLabelOption(t *testing.T) {
	if got := (Request{Label: "u:r:t:s0:c1,c2"}).LabelOption(); len(got) != 1 || got[0] != `context="u:r:t:s0:c1,c2"` {
		t.Errorf("%q", got)
	}
	if got := (Request{}).LabelOption(); got != nil {
		t.Errorf("without a label: %q", got)
	}
}
