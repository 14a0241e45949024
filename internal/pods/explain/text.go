package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"keelson/internal/pods/timeline"
)

// Every line begins with its subject, so that grep ^waits or grep ^container finds it.
const column = 11

// maxError is the length at which an error beside its bar is truncated.
const maxError = 80

// Text renders the explanation for a terminal that is width columns wide.
func Text(p *Pod, width int) string {
	b := &page{}
	b.line("pod", "%s/%s   %s", p.Namespace, p.Name, p.UID)
	b.line("state", "%s%s", p.State, forHow(p.Since, p.At))
	b.line("why", "%s", p.Verdict)
	b.blank()
	from := p.Source
	if from == "" {
		from = "no source"
	}
	b.line("source", "%s%s", from, agoIf(", received ", p.Arrived, p.At))
	if p.Phase != "" {
		b.line("published", "phase %s", p.Phase)
	}
	if t := p.Termination; t != nil {
		b.line("terminates", "%s, %s; its grace period is over %s", t.Why, ago(t.Since, p.At), until(t.Deadline, p.At))
	}
	switch s := p.Sandbox; {
	case s == nil:
		b.line("sandbox", "none")
	case s.Ready:
		b.line("sandbox", "ready, %s%s", ago(s.Since, p.At), orNothing("   ", strings.Join(s.IPs, " ")))
	default:
		b.line("sandbox", "not ready, created %s", ago(s.Since, p.At))
	}
	names := 0
	for _, c := range p.Containers {
		names = max(names, len(c.Name))
	}
	for _, c := range p.Containers {
		b.line("container", "%-*s  %s", names, c.Name, describe(c, p.At))
	}
	for _, w := range p.Waits {
		b.line("waits", "for %s%s", w.For, forHow(w.Since, p.At))
		if w.Reason != "" {
			b.line("", "%s", w.Reason)
		}
		if w.Error != "" {
			b.line("error", "%s", w.Error)
		}
		if !w.Next.IsZero() {
			b.line("next retry", "%s", until(w.Next, p.At))
		}
	}
	for _, t := range p.Doing {
		b.line("doing", "%s%s", t.What, forHow(t.Since, p.At))
	}
	if !p.Next.IsZero() {
		b.line("next sync", "%s", until(p.Next, p.At))
	}
	if len(p.Steps) > 0 {
		b.blank()
		b.waterfall(p, width)
	}
	return b.String()
}

// TextList renders the list of pods, those with problems first.
func TextList(l *List) string {
	pods := slices.Clone(l.Pods)
	slices.SortStableFunc(pods, func(a, b Line) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	names := len("POD")
	for _, p := range pods {
		names = max(names, len(p.Namespace)+1+len(p.Name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s  %-11s  %-7s  %s\n", names, "POD", "STATE", "SINCE", "WHY")
	for _, p := range pods {
		since := ""
		if !p.Since.IsZero() {
			since = short(l.At.Sub(p.Since))
		}
		fmt.Fprintf(&b, "%-*s  %-11s  %-7s  %s\n", names, p.Namespace+"/"+p.Name, p.State, since, p.Verdict)
	}
	return b.String()
}

func rank(s State) int {
	return slices.Index([]State{Stuck, Failing, Rejected, Waiting, Starting, Terminating, Running, Terminated, Ready},
		s)
}

type page struct{ strings.Builder }

func (b *page) blank() { b.WriteByte('\n') }

// line writes one fact. Further lines of a multi-line value are indented.
func (b *page) line(about, format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " \n")
	text = strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", column))
	fmt.Fprintf(b, "%-*s%s\n", column, about, text)
}

func describe(c Container, at time.Time) string {
	parts := []string{c.State}
	if !c.Since.IsZero() {
		parts[0] += " " + ago(c.Since, at)
	}
	if c.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *c.ExitCode))
	}
	if c.State == "running" {
		switch {
		case c.Ready:
			parts = append(parts, "ready")
		case c.Started:
			parts = append(parts, "not ready")
		default:
			parts = append(parts, "not started")
		}
	}
	if c.Reason != "" {
		parts = append(parts, c.Reason)
	}
	if c.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("restarts %d", c.Restarts))
	}
	if c.Kind != "container" {
		parts = append(parts, c.Kind)
	}
	return strings.Join(parts, ", ") + orNothing("   ", c.Image)
}

func orNothing(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

func ago(t, at time.Time) string { return short(at.Sub(t)) + " ago" }

func agoIf(before string, t, at time.Time) string {
	if t.IsZero() {
		return ""
	}
	return before + ago(t, at)
}

func forHow(since, at time.Time) string {
	if since.IsZero() {
		return ""
	}
	return ", for " + short(at.Sub(since))
}

// bar is one line of the waterfall diagram.
type bar struct {
	name     string
	depth    int
	from, to time.Duration // since the beginning of the diagram
	open     bool          // in progress
	err      string
	why      string
}

// bars returns the steps of the pod's start with their calls, in the order in which they began, and the length of the
// diagram. Later steps, such as a restart, are listed and not drawn.
func bars(p *Pod) (drawn []bar, later []timeline.View, whole time.Duration) {
	begin := p.Arrived
	if begin.IsZero() || p.Steps[0].Began.Before(begin) {
		begin = p.Steps[0].Began
	}
	end := begin
	for i, s := range p.Steps {
		// The start lasts as long as the gap between steps is at most calm.
		if i > 0 && s.Began.Sub(end) > calm && !end.Equal(begin) {
			later = p.Steps[i:]
			break
		}
		to := s.Ended
		if to.IsZero() {
			to = p.At
		}
		drawn = append(drawn, bar{
			name: nameOf(s),
			from: s.Began.Sub(begin),
			to:   to.Sub(begin),
			open: s.Ended.IsZero(),
			err:  s.Error,
			why:  s.Why,
		})
		for _, c := range s.Calls {
			from := c.Began.Sub(begin)
			drawn = append(drawn, bar{name: c.Method, depth: 1, from: from, to: from + c.Took, err: c.Error})
		}
		if to.After(end) {
			end = to
		}
	}
	return drawn, later, end.Sub(begin)
}

// calm is the gap between two steps after which a pod's start is over.
const calm = 10 * time.Second

func nameOf(s timeline.View) string {
	name := s.Verb + orNothing(" ", s.Target)
	if s.Attempt > 0 {
		name += fmt.Sprintf(" #%d", s.Attempt)
	}
	return name
}

// waterfall draws the steps of the start over time.
func (b *page) waterfall(p *Pod, width int) {
	drawn, rest, whole := bars(p)
	names := len("start")
	for _, d := range drawn {
		names = max(names, len(d.name)+2*d.depth)
	}
	names = min(names, 40)
	room := max(width-column-names-24, 20)
	b.line("start", "%-*s  %8s %8s", names, "", "after", "took")
	for _, d := range drawn {
		name := strings.Repeat("  ", d.depth) + d.name
		if len(name) > names {
			name = name[:names-1] + "…"
		}
		b.line("step", "%-*s  %8s %8s  %s%s", names, name, short(d.from), short(d.to-d.from), draw(d, whole, room),
			failed(d))
	}
	if !p.Ready.IsZero() && !p.Arrived.IsZero() {
		b.line("ready", "%s after it was received", short(p.Ready.Sub(p.Arrived)))
	}
	if p.Lost > 0 {
		b.line("", "%d later steps are not kept", p.Lost)
	}
	for _, s := range rest {
		took := "under way"
		if !s.Ended.IsZero() {
			took = "took " + short(s.Ended.Sub(s.Began))
		}
		b.line("later", "%-*s  %s, %s%s%s", names, nameOf(s), ago(s.Began,
			p.At), took, orNothing("   ", s.Why), orNothing("   failed: ", s.Error))
	}
}

func failed(d bar) string {
	if d.err == "" {
		return ""
	}
	line, _, _ := strings.Cut(d.err, "\n")
	if r := []rune(line); len(r) > maxError {
		line = string(r[:maxError]) + "…" // the whole text is in the lines above
	}
	return "  failed: " + line
}

// draw renders the bar; a step in progress has an open end.
func draw(d bar, whole time.Duration, room int) string {
	if whole <= 0 {
		whole = 1
	}
	at := func(t time.Duration) int { return int(int64(t) * int64(room) / int64(whole)) }
	from := min(at(d.from), room-1)
	to := min(max(at(d.to), from+1), room)
	full := "█"
	if d.depth > 0 {
		full = "▒"
	}
	out := strings.Repeat(" ", from) + strings.Repeat(full, to-from)
	if d.open {
		out += "▶"
	}
	return out
}
