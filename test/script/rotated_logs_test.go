package script

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"keelson/test/kit/parity"
)

// TestLogsThatAreRotated: logs of running containers are checked once per containerLogMonitorInterval.
// The log of an ended container is not rotated, whatever its size.
func TestLogsThatAreRotated(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-44")
	Settled(t, "containerLogMaxSize: 1k\ncontainerLogMonitorInterval: 1m\n", nil, func(t *testing.T, r *Run) {
		r.Pod(
			t,
			"web",
			`spec: {restartPolicy: Never, containers: [{name: runs}, {name: ended, command: ["sh", "-c", "exit 0"]}]}`,
		)
		r.Must(t, "advance", "5s")
		logs := map[string]string{}
		for _, c := range r.Runtime.Pods()[0].Containers {
			logs[c.Status.Metadata.Name] = c.Status.LogPath
			if err := os.WriteFile(c.Status.LogPath, []byte(strings.Repeat("x", 1000)), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		files := func(name string) (out []string) {
			entries, err := os.ReadDir(filepath.Dir(logs[name]))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				out = append(out, e.Name())
			}
			return out
		}
		time.Sleep(30 * time.Second)
		if got := fmt.Sprint(files("runs"), files("ended")); got != "[0.log] [0.log]" {
			t.Errorf("before the interval is over there are %s", got)
		}
		time.Sleep(40 * time.Second)
		if got := files("runs"); len(got) != 2 || !slices.Contains(got, "0.log") ||
			!strings.HasPrefix(got[1], "0.log.20") {
			t.Errorf("of the running container there are %s", got)
		}
		if got := files("ended"); !slices.Equal(got, []string{"0.log"}) {
			t.Errorf("of the ended container there are %s", got)
		}
		for _, c := range r.Runtime.Calls(0) {
			if c.Method == "ReopenContainerLog" && c.Container != "runs" {
				t.Errorf("the runtime was asked to open the log of %s again", c.Container)
			}
		}
	})
}
