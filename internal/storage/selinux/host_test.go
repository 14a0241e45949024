package selinux

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/selinux/go-selinux/label"
	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/need"
)

// policy imitates the library with the labels of a policy. It records the labels it returned.
type policy struct {
	process, file string
	err           error
	asked         [][]string
	kept          map[string]bool
}

func (p *policy) host() *Host {
	p.kept = map[string]bool{}
	return &Host{
		labels: func(options []string) (string, string, error) {
			p.asked = append(p.asked, options)
			if p.process != "" {
				p.kept[p.process] = true
			}
			return p.process, p.file, p.err
		},
		release: func(process string) { delete(p.kept, process) },
	}
}

func TestFileLabel(t *testing.T) {
	const process, file = "system_u:system_r:container_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"
	for _, c := range []struct {
		name   string
		o      *v1.SELinuxOptions
		policy policy
		want   string
		asked  []string
	}{
		{"no options", nil, policy{process: process, file: file}, "", nil},
		{
			"the runtime will choose a level",
			&v1.SELinuxOptions{User: "u", Role: "r", Type: "t"},
			policy{process: process, file: file},
			"",
			nil,
		},
		{
			"a level, and the rest is the policy's",
			&v1.SELinuxOptions{Level: "s0:c1,c2"},
			policy{process: process, file: file},
			file,
			[]string{"level:s0:c1,c2"},
		},
		{
			"everything",
			&v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0"},
			policy{process: process, file: file},
			file,
			[]string{"user:u", "role:r", "type:t", "level:s0"},
		},
		{
			"a policy without containers",
			&v1.SELinuxOptions{Level: "s0"},
			policy{file: "system_u:object_r:tmp_t:s0"},
			"",
			[]string{"level:s0"},
		},
	} {
		h := c.policy.host()
		got, err := h.FileLabel(c.o)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
		if c.asked == nil && len(c.policy.asked) > 0 ||
			c.asked != nil && !reflect.DeepEqual(c.policy.asked, [][]string{c.asked}) {
			t.Errorf("%s: the policy got %v, want %v", c.name, c.policy.asked, c.asked)
		}
		if len(c.policy.kept) > 0 {
			t.Errorf("%s: levels not released: %v", c.name, c.policy.kept)
		}
	}
}

func TestFileLabelInvalidOptions(t *testing.T) {
	cause := errors.New("no such level")
	p := &policy{err: cause}
	got, err := p.host().FileLabel(&v1.SELinuxOptions{Level: "x9"})
	if got != "" || !errors.Is(err, cause) {
		t.Errorf("%q, %v", got, err)
	}
}

// With SELinux enabled, the label has the policy's user, role and type.
func TestFileLabelOnHost(t *testing.T) {
	h := Here()
	if h == nil {
		// With SELinux disabled the library returns no labels.
		process, file, err := label.InitLabels([]string{"level:s0:c1,c2"})
		if process != "" || file != "" || err != nil {
			t.Errorf("without SELinux the library makes %q and %q, %v", process, file, err)
		}
		need.Skip(t, "this machine has no SELinux")
	}
	for range 2 { // the level is not reserved
		got, err := h.FileLabel(&v1.SELinuxOptions{Level: "s0:c1,c2"})
		if err != nil || !strings.HasSuffix(got, ":s0:c1,c2") || strings.Count(got, ":") != 4 {
			t.Errorf("%q, %v", got, err)
		}
	}
}
