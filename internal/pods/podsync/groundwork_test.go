package podsync

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

// noDirs, noCgroup and anySandbox are what has to be there before a pod has a sandbox, and
// the sandbox.
type (
	noDirs struct {
		Dirs
		why error
	}
	noCgroup struct {
		Cgroups
		why error
	}
	anySandbox struct{ Containers }
)

func (d noDirs) Make(types.UID) error                     { return d.why }
func (c noCgroup) MakePod(context.Context, *v1.Pod) error { return c.why }
func (anySandbox) RunSandbox(context.Context, *v1.Pod, uint32) (string, error) {
	return "s", nil
}

// A pod that has no directories or no cgroup has no sandbox either, and is told why.
func TestWhatIsMissingBeforeASandboxIsToldOf(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	for _, tc := range []struct {
		name         string
		dirs, cgroup error
		want         []string
	}{
		{"nothing is missing", nil, nil, nil},
		{"no directories", errors.New("make directory /pods/a: file exists"), nil,
			[]string{"Warning Failed error making pod data directories: make directory /pods/a: file exists"}},
		{"no cgroup", nil, errors.New("make cgroup /kubepods/poda: no space left on device"),
			[]string{"Warning FailedCreatePodContainer unable to ensure pod container exists: make cgroup /kubepods/poda: no space left on device"}},
	} {
		said := &noted{}
		m := newMeasured(t)
		m.cfg.Events, m.cfg.Dirs, m.cfg.Cgroups, m.cfg.Containers = said, noDirs{why: tc.dirs}, noCgroup{why: tc.cgroup}, anySandbox{}
		p := podNamed("a", pod.SourceAPI)
		id, err := m.worker("a", p).runSandbox(t.Context(), p, 0)
		if !slices.Equal(said.said, tc.want) || (id == "") != (len(tc.want) > 0) || (err != nil) != (len(tc.want) > 0) {
			t.Errorf("%s: sandbox %q, %v, said %q, want %q", tc.name, id, err, said.said, tc.want)
		}
	}
}
