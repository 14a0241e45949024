package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// compareRest compares the pod and its files on both sides when they are at rest.
func (p *play) compareRest(l *Life, at string) error {
	ours, theirs := p.sides[0].look(l), p.sides[1].look(l)
	for _, d := range podsUnlike(ours, theirs) {
		p.differ(l, "pod", at, d.where, d.ours, d.theirs)
	}
	if !p.settled(l) {
		return nil
	}
	trees, err := p.trees(l)
	if err != nil {
		return err
	}
	for _, path := range unlike(trees[0], trees[1]) {
		p.differ(l, "file", at, path, trees[0].at(path), trees[1].at(path))
	}
	return nil
}

// settled reports whether the pod, which is not a static pod, runs on both sides, so that all its files exist.
func (p *play) settled(l *Life) bool {
	for _, s := range p.sides {
		if look := s.look(l); l.Static || look["status.phase"] != "Running" ||
			look["metadata.deletionTimestamp"] != "" {
			return false
		}
	}
	return true
}

// compareWhole compares everything that was recorded of a life once it is over.
func (p *play) compareWhole(l *Life) {
	p.compareSayings(l)
	p.compareEvents(l)
	p.compareCalls(l)
	p.compareRequests(l)
}

// compareSayings compares all parts of statuses that were ever published. A part that was
// published for a short time only may have been skipped on the other side.
func (p *play) compareSayings(l *Life) {
	ours, theirs := p.sides[0].sayings(l), p.sides[1].sayings(l)
	for text, stood := range ours {
		if _, ok := theirs[text]; !ok && stood > passing {
			p.differ(l, "seen", "at some time", subject(text), text, absent)
		}
	}
	for text, stood := range theirs {
		if _, ok := ours[text]; !ok && stood > passing {
			p.differ(l, "seen", "at some time", subject(text), absent, text)
		}
	}
}

// passing is how long a status may be published on one side and skipped on the other: upstream's
// agent publishes statuses one after another, and falls behind when many pods change at once, the
// further the busier the machine is. A status that was published at a rest has been compared at that rest.
const passing = 20 * time.Second

func subject(saying string) string {
	s, _, _ := strings.Cut(saying, ":")
	return s
}

// sayings are the parts of all statuses of a life, each with the longest time on the clock for which it was published
// without a break.
func (s *side) sayings(l *Life) map[string]time.Duration {
	t := s.record.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	stood, since := map[string]time.Duration{}, map[string]time.Duration{}
	for _, p := range t.seen {
		if p.Status.StartTime == nil && p.Status.Phase == corev1.PodPending {
			continue // the status that the API server has set
		}
		now := map[string]bool{}
		for _, text := range say(p.Pod) {
			now[s.normal(text, t.uids)] = true
		}
		for text := range now {
			if _, ok := since[text]; !ok {
				since[text] = p.now
			}
		}
		for text, began := range since {
			stood[text] = max(stood[text], p.now-began)
			if !now[text] {
				delete(since, text)
			}
		}
	}
	for text, began := range since { // shown at last
		if t.gone {
			stood[text] = max(stood[text], t.goneAt-began)
		} else {
			stood[text] = time.Hour
		}
	}
	return stood
}

// say returns the parts of a status: the phase, the conditions and the containers.
func say(p *corev1.Pod) (list []string) {
	list = append(list, fmt.Sprintf("phase: %s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message))
	for _, c := range p.Status.Conditions {
		list = append(list, fmt.Sprintf("condition %s: %s %s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		list = append(list, fmt.Sprintf("container %s: %s, %d restarts", c.Name, stateOf(c.State), c.RestartCount))
	}
	return list
}

func stateOf(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return fmt.Sprintf("waiting %s %q", s.Waiting.Reason, s.Waiting.Message)
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %d signal %d %s %q", s.Terminated.ExitCode, s.Terminated.Signal,
			s.Terminated.Reason, s.Terminated.Message)
	case s.Running != nil:
		return "running"
	}
	return "nothing"
}

// compareEvents compares which events were sent, but not their order and number.
func (p *play) compareEvents(l *Life) {
	ours, _ := p.sides[0].reported(l)
	theirs, _ := p.sides[1].reported(l)
	for _, e := range ours {
		if !slices.Contains(theirs, e) {
			p.differ(l, "event", "at some time", subject(e), e, absent)
		}
	}
	for _, e := range theirs {
		if !slices.Contains(ours, e) {
			p.differ(l, "event", "at some time", subject(e), absent, e)
		}
	}
}

// reported returns the agent's events about a life, and their counts by type and reason and in total.
func (s *side) reported(l *Life) ([]string, map[string]int) {
	t := s.record.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	spoke := map[string]int{}
	for _, e := range t.events {
		n := max(1, int(e.Count))
		spoke[e.Type+" "+e.Reason] += n
		spoke[""] += n
	}
	return slices.Clone(t.reported), spoke
}

// compareCalls compares the calls to the runtime and their order. Two calls have an order
// if one had ended before the other began.
func (p *play) compareCalls(l *Life) {
	var first [2]map[string]request
	var keys [2][]string
	for i, s := range p.sides {
		first[i] = map[string]request{}
		for _, c := range s.record.track(l.Name).kept() {
			k := s.normal(c.key(), nil)
			if _, again := first[i][k]; !again {
				first[i][k] = c
				keys[i] = append(keys[i], k)
			}
		}
	}
	for i := range keys {
		for _, k := range keys[i] {
			if _, ok := first[1-i][k]; !ok {
				p.differ(l, "call", "at some time", k, []string{k, absent}[i], []string{absent, k}[i])
			}
		}
	}
	for i, a := range keys[0] {
		for _, b := range keys[0][i+1:] {
			ourA, ourB, theirA, theirB := first[0][a], first[0][b], first[1][a], first[1][b]
			if theirA.Method == "" || theirB.Method == "" {
				continue
			}
			switch {
			case ourA.End.Before(ourB.Start) && theirB.End.Before(theirA.Start):
				p.differ(l, "order", "at some time", a+" and "+b, a+" before "+b, b+" before "+a)
			case ourB.End.Before(ourA.Start) && theirA.End.Before(theirB.Start):
				p.differ(l, "order", "at some time", a+" and "+b, b+" before "+a, a+" before "+b)
			}
		}
	}
}

// compareRequests compares the contents of requests to the runtime: the first request for each
// sandbox, for each attempt of a container, for each change of their resources and for each image.
func (p *play) compareRequests(l *Life) {
	var asked [2]map[string]flat
	for i, s := range p.sides {
		asked[i] = map[string]flat{}
		t := s.record.track(l.Name)
		uids := t.knownUIDs()
		for _, c := range t.kept() {
			switch c.Method {
			case "RunPodSandbox", "CreateContainer", "UpdateContainerResources", "UpdatePodSandboxResources",
				"PullImage":
			default:
				continue
			}
			k := s.normal(c.key(), nil)
			if _, again := asked[i][k]; !again {
				asked[i][k] = s.flatRequest(c, uids)
			}
		}
	}
	for k, ours := range asked[0] {
		theirs, ok := asked[1][k]
		if !ok {
			continue // compareCalls reports it
		}
		for _, path := range unlike(ours, theirs) {
			method, _, _ := strings.Cut(k, " ")
			p.differ(l, "request", k, strings.TrimSuffix(method, "#0")+" "+path, ours.at(path), theirs.at(path))
		}
	}
}
