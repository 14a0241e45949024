package explain

import (
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	at := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return at.Add(-d) }
	runs := Container{Name: "a", Kind: "container", State: "running", Since: ago(time.Hour), Started: true, Ready: true}
	ended := Container{Name: "b", Kind: "container", State: "exited", Since: ago(time.Minute)}
	with := func(c Container, edit func(*Container)) Container {
		edit(&c)
		return c
	}
	image := Wait{For: "image a:1", Reason: "ImagePullBackOff", Error: "not found", Since: ago(time.Minute),
		Next: at.Add(20 * time.Second)}
	volume := Wait{For: "volume v", Since: ago(time.Hour)}
	pulls := Task{What: "pulling image a:1", Since: ago(5 * time.Second)}
	leaves := &Termination{Why: "it was deleted", Since: ago(time.Second), Deadline: at.Add(29 * time.Second)}
	const oneRuns = "1 of its containers still run, and their grace period is over in 29 s"
	for _, tc := range []struct {
		name    string
		pod     Pod
		state   State
		verdict string
		since   time.Time
	}{
		{"all run and are ready", Pod{Containers: []Container{runs}, Ready: ago(time.Minute)},
			Ready, "all containers run and are ready", ago(time.Minute)},
		{"one has not started",
			Pod{Containers: []Container{with(runs, func(c *Container) { c.Started, c.Ready = false, false })}},
			Running, "container a has not started yet: its startup probe or postStart hook is not done", ago(time.Hour)},
		{"one is not ready", Pod{Containers: []Container{runs, with(runs, func(c *Container) {
			c.Name, c.Kind, c.Ready, c.Since = "s", "sidecar", false, ago(time.Minute)
		})}},
			Running, "container s is not ready: its readiness probe does not succeed", ago(time.Minute)},
		{"the first that is not ready", Pod{Containers: []Container{
			with(runs, func(c *Container) { c.Started, c.Ready = false, false }),
			with(runs, func(c *Container) { c.Name, c.Ready = "b", false }),
		}},
			Running, "container a has not started yet: its startup probe or postStart hook is not done", ago(time.Hour)},
		{"some have ended", Pod{Containers: []Container{runs, ended}},
			Running, "1 of 2 containers run; the others have ended and are not restarted", ago(time.Hour)},
		{"init containers do not count", Pod{Containers: []Container{runs, with(ended, func(c *Container) {
			c.Kind = "init container"
		})}},
			Ready, "all containers run and are ready", ago(time.Hour)},
		{"nothing runs yet", Pod{Arrived: ago(time.Second)},
			Starting, "its first sync is in progress", ago(time.Second)},
		{"something is under way", Pod{Doing: []Task{pulls}}, Starting, "pulling image a:1", pulls.Since},
		{"a wait, with a task that may end it", Pod{At: at, Waits: []Wait{volume}, Doing: []Task{pulls}},
			Starting, "waiting for volume v", volume.Since},
		{"a wait", Pod{At: at, Waits: []Wait{volume}}, Waiting, "waiting for volume v", volume.Since},
		{"a failure comes before an earlier wait", Pod{At: at, Waits: []Wait{volume, image}, Doing: []Task{pulls}},
			Failing, "waiting for image a:1: ImagePullBackOff: not found; retried in 20 s", image.Since},
		{"a retry that is due", Pod{At: image.Next, Waits: []Wait{image}},
			Failing, "waiting for image a:1: ImagePullBackOff: not found; retried now", image.Since},
		{"one is terminated", Pod{At: at, Termination: leaves, Containers: []Container{runs, ended}, Waits: []Wait{image}},
			Terminating, "it is terminated: it was deleted; " + oneRuns,
			leaves.Since},
		{"a container of which nothing is known may run", Pod{At: at, Termination: leaves,
			Containers: []Container{with(ended, func(c *Container) { c.State = "unknown" })}},
			Terminating, "it is terminated: it was deleted; " + oneRuns,
			leaves.Since},
		{"what is left of it is released", Pod{At: at, Termination: leaves, Containers: []Container{ended},
			Waits: []Wait{volume}},
			Terminating, "it is terminated: it was deleted; waiting for volume v", leaves.Since},
		{"its end is under way", Pod{At: at, Termination: leaves, Doing: []Task{pulls}},
			Terminating, "it is terminated: it was deleted; pulling image a:1", pulls.Since},
		{"it has terminated", Pod{At: at, Termination: leaves, Containers: []Container{ended}},
			Terminated, "it has terminated: it was deleted", leaves.Since},
		{"rejected, whatever else", Pod{Arrived: ago(time.Hour), Termination: leaves,
			Rejected: &Rejection{Reason: "OutOfcpu", Message: "too little"}},
			Rejected, "this node rejected it: OutOfcpu: too little", ago(time.Hour)},
		{"stuck, whatever else", Pod{Stuck: ago(time.Minute), Rejected: &Rejection{}, Containers: []Container{runs}},
			Stuck, "its worker does not respond: one turn has not ended", ago(time.Minute)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Judge(&tc.pod)
			if p := tc.pod; p.State != tc.state || p.Verdict != tc.verdict || !p.Since.Equal(tc.since) {
				t.Errorf("%s, %q, since %s\nwant %s, %q, since %s", p.State, p.Verdict, p.Since, tc.state, tc.verdict,
					tc.since)
			}
		})
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:           "0 ms",
		999 * time.Millisecond: "999 ms",
		time.Second:            "1.0 s",
		10 * time.Second:       "10 s",
		119 * time.Second:      "119 s",
		2 * time.Minute:        "2 min",
		2 * time.Hour:          "2 h",
		48 * time.Hour:         "2 days",
	} {
		if got := short(d); got != want {
			t.Errorf("%s is shown as %q, want %q", d, got, want)
		}
	}
}
