package main

import (
	"fmt"
	"slices"
	"time"
)

// history has the last state of the pods, to find changes.
type history struct {
	pods  map[string]podState  // by name
	first map[string]time.Time // when a UID was first seen
	ready map[string]bool      // UIDs that were settled once
}

func newHistory() *history {
	return &history{pods: map[string]podState{}, first: map[string]time.Time{}, ready: map[string]bool{}}
}

// update stores the current state and returns a sentence for each change.
func (h *history) update(pods []podState, now time.Time) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	next := map[string]podState{}
	for _, s := range pods {
		next[s.Name] = s
		was, known := h.pods[s.Name]
		if _, ok := h.first[s.UID]; !ok {
			h.first[s.UID] = now
		}
		switch {
		case known && was.UID != s.UID:
			say("%s is replaced: its manifest changed, the old pod ends before the new one starts", s.Name)
			h.forget(was.UID)
			was = podState{}
		case !known:
			say("%s is new", s.Name)
		}
		if s.settled() && !was.settled() || s.Done && !was.Done {
			say("%s", h.settledNow(s, now))
		}
		if was.Ready && !s.settled() {
			say("%s is not Ready any more: %s", s.Name, s.Counts)
		}
		if s.Restarts > was.Restarts {
			say("%s: a container was restarted, %d time(s) so far", s.Name, s.Restarts)
		}
		for _, new := range s.Troubles {
			// The text of the cause can change with each attempt.
			if !slices.ContainsFunc(was.Troubles, func(old trouble) bool { return old.Step == new.Step }) {
				say("%s: %s", s.Name, new)
			}
		}
	}
	for name, s := range h.pods {
		if _, there := next[name]; !there {
			say("%s ends: its manifest is gone", name)
			h.forget(s.UID)
		}
	}
	h.pods = next
	return out
}

// settledNow returns the sentence about a pod that has become Ready or has completed.
func (h *history) settledNow(s podState, now time.Time) string {
	took := now.Sub(h.first[s.UID]).Seconds()
	if s.Done {
		return fmt.Sprintf("%s has completed, after %.1f s", s.Name, took)
	}
	if h.ready[s.UID] {
		return s.Name + " is Ready again"
	}
	h.ready[s.UID] = true
	return fmt.Sprintf("%s is Ready at %s, after %.1f s", s.Name, s.IP, took)
}

func (h *history) forget(uid string) {
	delete(h.first, uid)
	delete(h.ready, uid)
}

// starting reports whether a pod is so young that failing probes are usual.
func (h *history) starting(name string, now time.Time) bool {
	s, known := h.pods[name]
	return !known || !h.ready[s.UID] && now.Sub(h.first[s.UID]) < usual
}

// usual is how long a server may take until it listens.
const usual = 5 * time.Second
