package script

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"keelson/internal/app"
	"keelson/test/kit/parity"
)

// A reload of the configuration can set and remove the size limit of logs.
func TestThatLogsMayGrowCanBeChanged(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-81")
	var hangup chan os.Signal
	Settled(t, "containerLogMaxSize: '-1'\n", func(w *World) {
		hangup = make(chan os.Signal) // made in the bubble
		w.Operator = app.Operator{Hangup: hangup, Load: w.Settings}
	}, func(t *testing.T, r *Run) {
		r.Pod(t, "web", PlainPod)
		r.Must(t, "wait", "web", "Ready")
		logs := func() []string {
			t.Helper()
			files, err := filepath.Glob(filepath.Join(r.Path("logs"), "*", "*", "*"))
			if err != nil {
				t.Fatal(err)
			}
			return files
		}
		if len(logs()) != 1 {
			t.Fatalf("the container logs to %v", logs())
		}
		live := logs()[0]
		grow := func() {
			t.Helper()
			f, err := os.OpenFile(live, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(strings.Repeat("x", 100)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		for _, turn := range []struct {
			size string
			want int
		}{{"'-1'", 1}, {"'50'", 2}, {"'-1'", 2}} {
			r.World.Config = "containerLogMaxSize: " + turn.size + "\n"
			hangup <- os.Interrupt
			grow()
			if n := len(logs()); n != turn.want {
				t.Errorf("with a limit of %s there are %d files, want %d: %v", turn.size, n, turn.want, logs())
			}
		}
	})
}

// An agent that dies between the rename of a log and ReopenContainerLog leaves a dangling link. The next
// agent has the log reopened and keeps the link, since the container runs; links of containers that no
// longer exist are removed, and of those that have exited if there is no log.
func TestLinksToLogsOverACrash(t *testing.T) {
	parity.ProvesPart(t, 3, "RT-32")
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		r.Pod(t, "web", PlainPod)
		r.Must(t, "wait", "web", "Ready")
		links := func() []string {
			t.Helper()
			all, err := filepath.Glob(filepath.Join(r.Path("containers"), "*.log"))
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		if len(links()) != 1 {
			t.Fatalf("the links are %v", links())
		}
		live := links()[0]
		log, err := os.Readlink(live)
		if err != nil {
			t.Fatal(err)
		}
		r.Pod(t, "done", "spec: {restartPolicy: Never, containers: [{name: main}, {name: other}]}\n")
		r.Must(t, "wait", "done", "Ready")
		r.Must(t, "exit", "done", "main", "0")
		r.Must(t, "exit", "done", "other", "0")
		r.Must(t, "wait", "done", "Succeeded")
		r.kill()
		ended, err := filepath.Glob(filepath.Join(r.Path("containers"), "done_default_*.log"))
		if err != nil || len(ended) != 2 {
			t.Fatalf("the links of the pod that ended are %v, %v", ended, err)
		}
		lost, err := os.Readlink(ended[0])
		if err := errors.Join(err, os.Remove(lost)); err != nil {
			t.Fatal(err)
		}
		gone := filepath.Join(filepath.Dir(live), "old_default_main-"+strings.Repeat("0", 64)+".log")
		if err := errors.Join(os.Rename(log, log+".20260102-030405"),
			os.Symlink(r.Path("logs/default_old_u/main/0.log"), gone)); err != nil {
			t.Fatal(err)
		}
		r.Start()
		time.Sleep(time.Minute)
		if _, err := os.Stat(live); err != nil || !slices.Equal(links(), []string{ended[1], live}) {
			t.Errorf("the links are %v, %v; want %s and %s", links(), err, ended[1], live)
		}
	})
}

// The log of a container whose exit caused RestartAllContainers is kept, with the link in /var/log/containers by which
// log collectors find it, until the pod is removed.
func TestLogsOutliveARestartOfAllContainers(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-45")
	const gang = "spec: {restartPolicy: Never, containers: [{name: other}, {name: main, restartPolicyRules: " +
		"[{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]}]}\n"
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		r.Pod(t, "gang", gang)
		r.Must(t, "wait", "gang", "Ready")
		r.Must(t, "exit", "gang", "main", "88")
		r.Must(t, "wait", "gang", "main#1", "other#1")
		for _, name := range []string{"main", "other"} {
			logs, err := filepath.Glob(filepath.Join(r.Path("logs"), "default_gang_*", name, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if len(logs) != 2 || filepath.Base(logs[0]) != "0.log" || filepath.Base(logs[1]) != "1.log" {
				t.Errorf("the logs of %s are %v, want those of both instances", name, logs)
			}
			links, err := filepath.Glob(filepath.Join(r.Path("containers"), "gang_default_"+name+"-*.log"))
			if err != nil || len(links) != 2 {
				t.Errorf("the links to the logs of %s are %v, %v; want two", name, links, err)
			}
		}
		r.Must(t, "delete", "gang", "grace=1")
		r.Must(t, "wait", "gang", "gone")
		time.Sleep(time.Minute)
		if left := r.Must(t, "left"); left != "nothing\n" {
			t.Errorf("with the pod gone there is left: %s", left)
		}
	})
}
