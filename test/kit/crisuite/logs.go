package crisuite

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/await"
)

// logLine is one line of the CRI log format.
var logLine = regexp.MustCompile(
	`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP]) (.*)$`)

// logOf reads a log without its times, sorted by stream.
func logOf(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		m := logLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("%q is not a line of CRI format", line)
		}
		if _, err := time.Parse(time.RFC3339Nano, m[1]); err != nil {
			t.Errorf("time of %q: %v", line, err)
		}
		out[m[2]] = append(out[m[2]], m[3]+" "+m[4])
	}
	return out
}

func testLog(t *testing.T, s *suite) {
	p := s.runPod(t)
	cfg := s.script(t, p, "main", `echo one; echo two >&2; echo "$GREETING"; echo -n tail`)
	cfg.LogPath = "made-by-the-runtime/0.log"
	cfg.Envs = []*cri.KeyValue{{Key: "GREETING", Value: []byte("hello there")}}
	st := s.exited(t, s.start(t, p, cfg))
	got := logOf(t, st.LogPath)
	if want := []string{"F one", "F hello there", "P tail"}; !slices.Equal(got["stdout"], want) {
		t.Errorf("stdout %q, want %q", got["stdout"], want)
	}
	if want := []string{"F two"}; !slices.Equal(got["stderr"], want) {
		t.Errorf("stderr %q, want %q", got["stderr"], want)
	}
	s.remove(t, st.Id)
	if _, err := os.Stat(st.LogPath); err != nil {
		t.Errorf("the log went with the container: %v", err)
	}
}

func testReopen(t *testing.T, s *suite) {
	p := s.runPod(t)
	var script strings.Builder
	for i := range 60 {
		fmt.Fprintf(&script, "echo %d; sleep 1; ", i)
	}
	id := s.start(t, p, s.script(t, p, "main", script.String()+"sleep 3600"))
	path := s.status(t, id).LogPath
	waitFor(t, s, "the first line", func() bool { return len(logOf(t, path)["stdout"]) > 0 })
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rt.ReopenContainerLog(s.ctx(t), &cri.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, s, "a line in the new file", func() bool { return len(logOf(t, path)["stdout"]) > 0 })
	before, after := logOf(t, path+".old")["stdout"], logOf(t, path)["stdout"]
	for i, line := range slices.Concat(before, after) {
		if line != fmt.Sprint("F ", i) {
			t.Errorf("the old file has %q, the new one %q", before, after)
			break
		}
	}
	s.stop(t, id, 0)
	_, err := s.rt.ReopenContainerLog(s.ctx(t), &cri.ReopenContainerLogRequest{ContainerId: id})
	wantError(t, "reopening the log of an exited container", err)
}

// waitFor waits for something that no call reports.
func waitFor(t *testing.T, s *suite, what string, done func() bool) {
	t.Helper()
	await.Within(t, s.Patience, 10*time.Millisecond, what, func() (string, bool) { return "", done() })
}
