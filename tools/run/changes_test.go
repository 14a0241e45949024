package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	web := sight{Name: "web", UID: "1", IP: "10.0.0.2", Counts: "1/1 ready"}
	ready := func(s sight) sight { s.Ready = true; return s }
	with := func(s sight, change func(*sight)) sight { change(&s); return s }
	steps := []struct {
		name string
		see  []sight
		say  []string // beginnings of the sentences
	}{
		{"a pod that is not known is new", []sight{web}, []string{"web is new"}},
		{"what is as before is not worth a word", []sight{web}, nil},
		{"a pod becomes Ready", []sight{ready(web)}, []string{"web is Ready at 10.0.0.2, after 2.0 s"}},
		{"and stays so", []sight{ready(web)}, nil},
		{"a container of it ends and comes back", []sight{with(web, func(s *sight) { s.Restarts = 1 })},
			[]string{"web is not Ready any more", "web: a container was restarted, 1 time(s)"}},
		{
			"it is Ready once more",
			[]sight{ready(with(web, func(s *sight) { s.Restarts = 1 }))},
			[]string{"web is Ready again"},
		},
		{
			"another pod of the name takes its place",
			[]sight{with(web, func(s *sight) { s.UID = "2" })},
			[]string{"web is replaced"},
		},
		{
			"the new one's time counts from its own beginning",
			[]sight{ready(with(web, func(s *sight) { s.UID = "2" }))},
			[]string{"web is Ready at 10.0.0.2, after 1.0 s"},
		},
		{"trouble is shown", []sight{with(web, func(s *sight) {
			s.UID = "2"
			s.Troubles = []trouble{{"cannot start container a", "no file", "correct it"}}
		})},
			[]string{"web is not Ready any more",
				"web: cannot start container a\n  cause: no file\n  to do: correct it"}},
		{"and not again when only its wording changes", []sight{with(web, func(s *sight) {
			s.UID = "2"
			s.Troubles = []trouble{{"cannot start container a", "no file, 2nd try", "correct it"}}
		})}, nil},
		{
			"a job at work",
			[]sight{{Name: "job", UID: "3", Ready: true}},
			[]string{"job is new", "job is Ready", "web ends: its manifest is gone"},
		},
		{"has done it", []sight{{Name: "job", UID: "3", Done: true}}, []string{"job has completed, after 1.0 s"}},
		{"all gone", nil, []string{"job ends"}},
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
