package podsync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
)

// noDirs and noCgroup return why when the directories and the cgroup of a pod are created. anySandbox creates its
// sandbox.
type (
	noDirs struct {
		Dirs
		why error
	}
	noCgroup struct {
		CgroupMaker
		why error
	}
	anySandbox struct{ Sandboxes }
)

func (d noDirs) Make(types.UID) error                     { return d.why }
func (c noCgroup) MakePod(context.Context, *v1.Pod) error { return c.why }
func (anySandbox) RunSandbox(context.Context, *v1.Pod, uint32) (string, error) {
	return "s", nil
}

// A pod that has no directories or no cgroup has no sandbox either, and gets an event.
func TestFailuresBeforeSandboxAreRecorded(t *testing.T) {
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
		logged := &noted{}
		m := newMeasured(t)
		m.cfg.Events, m.cfg.Runtime.Sandboxes = logged, anySandbox{}
		m.cfg.Disk.Dirs, m.cfg.Cgroups.CgroupMaker = noDirs{why: tc.dirs}, noCgroup{why: tc.cgroup}
		p := podNamed("a", pod.SourceAPI)
		res, err := performer{
			w:  m.worker("a", p),
			in: &podplan.Input{},
		}.runSandbox(podplan.Step{Verb: podplan.RunSandbox})(t.Context())
		id := res.effect.Sandbox
		if !slices.Equal(logged.logged, tc.want) || (id == "") != (len(tc.want) > 0) ||
			(err != nil) != (len(tc.want) > 0) {
			t.Errorf("%s: sandbox %q, %v, logged %q, want %q", tc.name, id, err, logged.logged, tc.want)
		}
	}
}

// Sandboxes that an earlier agent has stopped are known by the stored phase: it is terminal only after that. Of
// sandboxes that are gone nothing is kept.
func TestStoppedSandboxesFromStoredPhase(t *testing.T) {
	have := pod.Runtime{Sandboxes: []pod.Sandbox{{ID: "dead"}, {ID: "up", Ready: true}}}
	for _, tc := range []struct {
		phase v1.PodPhase
		want  map[string]bool
	}{
		{v1.PodRunning, map[string]bool{"up": true}},
		{v1.PodFailed, map[string]bool{"up": true, "dead": true}},
		{v1.PodSucceeded, map[string]bool{"up": true, "dead": true}},
	} {
		s := sandboxes{stopped: map[string]bool{"up": true, "gone": true}}
		s.keep(have, &v1.Pod{Status: v1.PodStatus{Phase: tc.phase}})
		if !maps.Equal(s.stopped, tc.want) {
			t.Errorf("%s: stopped are %v, want %v", tc.phase, s.stopped, tc.want)
		}
	}
}
