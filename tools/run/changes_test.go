package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	web := podState{Name: "web", UID: "1", IP: "10.0.0.2", Counts: "1/1 ready"}
	ready := func(s podState) podState { s.Ready = true; return s }
	with := func(s podState, change func(*podState)) podState { change(&s); return s }
	steps := []struct {
		name string
		see  []podState
		say  []string // beginnings of the sentences
	}{
		{"a pod that is not known is new", []podState{web}, []string{"web is new"}},
		{"an unchanged pod is not reported", []podState{web}, nil},
		{"a pod becomes Ready", []podState{ready(web)}, []string{"web is Ready at 10.0.0.2, after 2.0 s"}},
		{"a pod that remains Ready is not reported", []podState{ready(web)}, nil},
		{"a container is restarted", []podState{with(web, func(s *podState) { s.Restarts = 1 })},
			[]string{"web is not Ready any more", "web: a container was restarted, 1 time(s)"}},
		{
			"it is Ready once more",
			[]podState{ready(with(web, func(s *podState) { s.Restarts = 1 }))},
			[]string{"web is Ready again"},
		},
		{
			"another pod of the same name",
			[]podState{with(web, func(s *podState) { s.UID = "2" })},
			[]string{"web is replaced"},
		},
		{
			"the new pod is Ready",
			[]podState{ready(with(web, func(s *podState) { s.UID = "2" }))},
			[]string{"web is Ready at 10.0.0.2, after 1.0 s"},
		},
		{"a trouble is reported", []podState{with(web, func(s *podState) {
			s.UID = "2"
			s.Troubles = []trouble{{"cannot start container a", "no file", "correct it"}}
		})},
			[]string{"web is not Ready any more",
				"web: cannot start container a\n  cause: no file\n  to do: correct it"}},
		{"a trouble is not reported again with another cause", []podState{with(web, func(s *podState) {
			s.UID = "2"
			s.Troubles = []trouble{{"cannot start container a", "no file, 2nd try", "correct it"}}
		})}, nil},
		{
			"a running job",
			[]podState{{Name: "job", UID: "3", Ready: true}},
			[]string{"job is new", "job is Ready", "web ends: its manifest is gone"},
		},
		{"the job completes", []podState{{Name: "job", UID: "3", Done: true}}, []string{"job has completed, after 1.0 s"}},
		{"all pods are removed", nil, []string{"job ends"}},
	}
	h, now := newHistory(), time.Unix(1000, 0)
	for _, s := range steps {
		got := h.update(s.see, now)
		same := slices.EqualFunc(got, s.say, strings.HasPrefix)
		if !same {
			t.Errorf("%s:\n got %q\nwant %q", s.name, got, s.say)
		}
		now = now.Add(time.Second)
	}
	if len(h.first)+len(h.ready) > 0 {
		t.Errorf("pods that are gone are still remembered: %v %v", h.first, h.ready)
	}
}
