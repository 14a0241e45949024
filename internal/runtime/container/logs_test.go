package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestNextAttempt(t *testing.T) {
	parity.ProvesPart(t, 3, "RT-16")
	for _, tc := range []struct {
		name  string
		files []string
		want  int
	}{
		{"no logs", nil, 0},
		{"one log", []string{"0.log"}, 1},
		{"the highest, by number", []string{"9.log", "10.log", "2.log"}, 11},
		{"rotated logs count", []string{"0.log", "3.log.20260102-030405", "2.log.20260102-030405.gz"}, 4},
		{"logs that others rotate count", []string{"2.log", "5.log-20260102", "6.log~"}, 7},
		{"other files do not", []string{"7.txt", "x8.log", "9.lo", "-1.log", "+5.log", "0.log", "99999999999999.log"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := nextAttempt(tc.files); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestNextAttemptReadsTheLogDirectory(t *testing.T) {
	parity.ProvesPart(t, 3, "RT-16")
	b := newBench(t, nil)
	ref := pod.Ref{UID: "uid-1", Namespace: "ns", Name: "web"}
	if n, err := b.NextAttempt(ref, "main"); n != 0 || err != nil {
		t.Errorf("without a directory: %d, %v", n, err)
	}
	dir := filepath.Join(b.logs, "ns_web_uid-1", "main")
	if err := os.MkdirAll(filepath.Join(dir, "7.log"), 0o755); err != nil { // a directory is no log
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "4.log"))
	if n, err := b.NextAttempt(ref, "main"); n != 5 || err != nil {
		t.Errorf("after attempt 4: %d, %v", n, err)
	}
}

func write(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLegacyLogLink(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-43")
	b := newBench(t, func(c *Config) { c.ContainerLogsDir = "/c" })
	id := strings.Repeat("f", 64)
	ref := pod.Ref{Namespace: "ns", Name: "web"}
	if got, want := b.legacyLogLink(ref, "main", id), "/c/web_ns_main-"+id+".log"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	ref.Name = strings.Repeat("n", 253)
	if got := filepath.Base(b.legacyLogLink(ref, "main", id)); len(got) != 255 || !strings.HasSuffix(got, ".log") ||
		!strings.HasPrefix(got, ref.Name[:251]) {
		t.Errorf("a long name becomes %d characters: %s", len(got), got)
	}
}

func TestRemoveContainerRemovesLogs(t *testing.T) {
	parity.Proves(t, "RT-48")
	parity.ProvesPart(t, 4, "RT-43")
	b := newBench(t, nil)
	p := simplePod(nil)
	s := b.startOf(p, b.run(t, p))
	s.Attempt = 1
	id, failure := b.StartContainer(t.Context(), s)
	if failure != nil {
		t.Fatal(failure)
	}
	dir := filepath.Join(b.logs, "ns_web_uid-1", "main")
	log := filepath.Join(dir, "1.log")
	link := filepath.Join(b.cfg.ContainerLogsDir, "web_ns_main-"+id+".log")
	if to, err := os.Readlink(link); err != nil || to != log {
		t.Errorf("link leads to %q, %v; want %s", to, err, log)
	}
	write(t, log+".20260102-030405", log+".20260101-030405.gz", filepath.Join(dir, "11.log"),
		filepath.Join(dir, "0.log"))
	c := pod.Container{ID: id, Name: "main", LogPath: log}
	if err := b.StopContainer(t.Context(), Stop{Pod: p, Spec: s.Container, Container: c}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{log, log + ".20260102-030405", log + ".20260101-030405.gz", link} {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("of a container that was stopped: %v", err)
		}
	}
	if err := b.RemoveContainer(t.Context(), Removal{Ref: pod.RefOf(p), Container: c}); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"0.log", "11.log"}) {
		t.Errorf("left are %q, want those of other attempts", left)
	}
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link is still there: %v", err)
	}
	if n := len(b.runtime.Pods()[0].Containers); n != 0 {
		t.Errorf("%d containers are left", n)
	}
	if err := b.RemoveContainer(t.Context(), Removal{Ref: pod.RefOf(p), Container: c}); err != nil {
		t.Errorf("removing it again: %v", err)
	}
}

func TestNoLegacyLinkWithoutLog(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-43")
	b := newBench(t, nil)
	if err := b.linkLegacyLog(pod.Ref{Namespace: "ns", Name: "web"}, "main", "id", "/nonexistent/0.log"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(b.legacyLogLink(pod.Ref{Namespace: "ns", Name: "web"}, "main", "id")); !os.IsNotExist(err) {
		t.Errorf("a link to nowhere: %v", err)
	}
}

// TestLinkLogs creates missing legacy links, but none for containers that never ran.
func TestLinkLogs(t *testing.T) {
	b := newBench(t, nil)
	ref := pod.Ref{Namespace: "ns", Name: "web"}
	file := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	have := pod.Runtime{
		Ref: ref,
		Containers: []pod.Container{
			{ID: "runs", Name: "main", State: pod.StateRunning, LogPath: file},
			{ID: "made", Name: "main", State: pod.StateCreated, LogPath: file},
		},
	}
	for range 2 { // an existing link is correct
		if err := b.LinkLogs(have); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := os.Readlink(b.legacyLogLink(ref, "main", "runs")); err != nil || to != file {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if _, err := os.Lstat(b.legacyLogLink(ref, "main", "made")); !os.IsNotExist(err) {
		t.Errorf("a link for a container that never ran: %v", err)
	}
}

func TestRemoveDeadLinks(t *testing.T) {
	b := newBench(t, nil)
	rotated := filepath.Join(b.logs, "ns_web_uid-1", "side", "0.log")
	live := func(log string) bool { return log == rotated }
	if err := b.RemoveDeadLinks(live); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	links := b.cfg.ContainerLogsDir
	there := filepath.Join(b.logs, "ns_web_uid-1", "main", "0.log")
	write(t, there, filepath.Join(links, "file.log"))
	for name, to := range map[string]string{
		"live.log":    there,
		"rotated.log": rotated,
		"dead.log":    filepath.Join(b.logs, "ns_gone_uid-2", "main", "0.log"),
		"foreign.log": "/nowhere/0.log",
	} {
		if err := os.Symlink(to, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RemoveDeadLinks(live); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(links)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"file.log", "foreign.log", "live.log", "rotated.log"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}
