package explain

import (
	"fmt"
	"strings"
	"time"

	"keelson/internal/host/clock"
)

// Judge sets the pod's state, a sentence that explains it, and since when it holds.
func Judge(p *Pod) {
	p.State, p.Verdict, p.Since = judge(p)
}

func judge(p *Pod) (State, string, time.Time) {
	switch {
	case !p.Stuck.IsZero():
		return Stuck, "its worker does not respond: one turn has not ended", p.Stuck
	case p.Rejected != nil:
		return Rejected, fmt.Sprintf("this node rejected it: %s: %s", p.Rejected.Reason, p.Rejected.Message), p.Arrived
	case p.Termination != nil:
		return terminating(p)
	}
	if w, ok := first(p.Waits, Wait.failed); ok {
		return Failing, sentence(w, p.At), w.Since
	}
	if w, ok := first(p.Waits, func(Wait) bool { return true }); ok {
		if p.busyWith() {
			return Starting, sentence(w, p.At), w.Since
		}
		return Waiting, sentence(w, p.At), w.Since
	}
	return living(p)
}

func first(ws []Wait, is func(Wait) bool) (Wait, bool) {
	for _, w := range ws {
		if is(w) {
			return w, true
		}
	}
	return Wait{}, false
}

// busyWith reports whether a task is in progress that may end the wait.
func (p *Pod) busyWith() bool { return len(p.Doing) > 0 }

func sentence(w Wait, at time.Time) string {
	var b strings.Builder
	b.WriteString("waiting for " + w.For)
	if w.Reason != "" {
		fmt.Fprintf(&b, ": %s", w.Reason)
	}
	if w.Error != "" {
		fmt.Fprintf(&b, ": %s", w.Error)
	}
	if !w.Next.IsZero() {
		fmt.Fprintf(&b, "; retried %s", until(w.Next, at))
	}
	return b.String()
}

func terminating(p *Pod) (State, string, time.Time) {
	alive := 0
	for _, c := range p.Containers {
		if c.State == "running" || c.State == "unknown" {
			alive++
		}
	}
	why := "it is terminated: " + p.Termination.Why
	switch {
	case alive > 0:
		grace := until(p.Termination.Deadline, p.At)
		return Terminating, fmt.Sprintf("%s; %d of its containers still run, and their grace period is over %s", why,
				alive, grace),
			p.Termination.Since
	case len(p.Waits) > 0:
		return Terminating, why + "; " + sentence(p.Waits[0], p.At), p.Termination.Since
	case len(p.Doing) > 0:
		return Terminating, why + "; " + p.Doing[0].What, p.Doing[0].Since
	}
	return Terminated, "it has terminated: " + p.Termination.Why, p.Termination.Since
}

// living returns the state of a pod that waits for nothing.
func living(p *Pod) (State, string, time.Time) {
	var since time.Time
	notReady := ""
	runs, want := 0, 0
	for _, c := range p.Containers {
		if c.Kind != "container" && c.Kind != "sidecar" {
			continue
		}
		want++
		if c.State != "running" {
			continue
		}
		runs++
		if c.Since.After(since) {
			since = c.Since
		}
		switch {
		case notReady != "" || c.Ready:
		case !c.Started:
			notReady = fmt.Sprintf("container %s has not started yet: its startup probe or postStart hook is not done",
				c.Name)
		default:
			notReady = fmt.Sprintf("container %s is not ready: its readiness probe does not succeed", c.Name)
		}
	}
	switch {
	case notReady != "":
		return Running, notReady, since
	case runs > 0 && runs == want:
		return Ready, "all containers run and are ready", clock.Later(since, p.Ready)
	case runs > 0:
		return Running, fmt.Sprintf("%d of %d containers run; the others have ended and are not restarted", runs,
			want), since
	case len(p.Doing) > 0:
		return Starting, p.Doing[0].What, p.Doing[0].Since
	}
	return Starting, "its first sync is in progress", p.Arrived
}

// until formats the time t relative to at.
func until(t, at time.Time) string {
	if d := t.Sub(at); d > 0 {
		return "in " + short(d)
	}
	return "now"
}

// short formats a duration with two or three digits.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}
