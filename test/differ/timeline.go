package differ

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// keep writes a life that differed, its differences and the timeline of each side to a file.
func (p *play) keep(l *Life) error {
	if p.cfg.Keep == "" {
		return nil
	}
	var b strings.Builder
	p.found.Lock()
	for _, d := range p.result.Differences {
		if d.Life == l {
			fmt.Fprintf(&b, "%s, %s %s\n  ours:   %s\n  theirs: %s\n", d.At, d.Kind, d.Where, d.Ours, d.Theirs)
		}
	}
	p.found.Unlock()
	if b.Len() == 0 {
		return nil
	}
	if err := l.print(&b, p.history.Between); err != nil {
		return err
	}
	for i, s := range p.sides {
		fmt.Fprintf(&b, "\n%s:\n%s", []string{"ours", "theirs"}[i], strings.Join(s.timeline(l), "\n"))
	}
	return os.WriteFile(filepath.Join(p.cfg.Keep, l.Name+".txt"), []byte(b.String()+"\n"), 0o644)
}

// timeline lists the calls, statuses, events and steps of one side, one on each line, in order of time.
func (s *side) timeline(l *Life) []string {
	t := s.record.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	type moment struct {
		at   time.Time
		text string
	}
	var list []moment
	for _, c := range t.calls {
		text := "call    " + c.key()
		if c.Err != "" {
			text += ": " + c.Err
		}
		list = append(list, moment{c.Start, fmt.Sprintf("%s, for %d ms", text, c.End.Sub(c.Start).Milliseconds())})
	}
	var before []string
	for _, p := range t.seen {
		now := say(p.Pod)
		for _, text := range now {
			if !slices.Contains(before, text) {
				list = append(list, moment{p.at, "status  " + text})
			}
		}
		before = now
	}
	for _, e := range t.events {
		at := e.FirstTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		list = append(list,
			moment{at, fmt.Sprintf("event   %s %s: %s (%s)", e.Type, e.Reason, e.Message, e.InvolvedObject.FieldPath)})
	}
	for _, st := range t.steps {
		list = append(list, moment{st.at, "step    " + st.text})
	}
	slices.SortStableFunc(list, func(a, b moment) int { return a.at.Compare(b.at) })
	var out []string
	for _, m := range list {
		out = append(out, fmt.Sprintf("%s  %s", m.at.Format("04:05.000"), s.normal(m.text, t.uids)))
	}
	return out
}
