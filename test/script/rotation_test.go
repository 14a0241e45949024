package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keelson/internal/app"
)

// Logs may grow while the configuration says so, and no longer.
func TestThatLogsMayGrowCanBeChanged(t *testing.T) {
	var hangup chan os.Signal
	settled(t, "containerLogMaxSize: '-1'\n", func(w *world) {
		hangup = make(chan os.Signal) // of the bubble
		w.operator = app.Operator{Hangup: hangup, Load: w.settings}
	}, func(t *testing.T, r *run) {
		r.pod(t, "web", plainPod)
		r.must(t, "wait", "web", "Ready")
		logs := func() []string {
			t.Helper()
			files, err := filepath.Glob(filepath.Join(r.path("logs"), "*", "*", "*"))
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
			r.world.config = "containerLogMaxSize: " + turn.size + "\n"
			hangup <- os.Interrupt
			grow()
			if n := len(logs()); n != turn.want {
				t.Errorf("with a limit of %s there are %d files, want %d: %v", turn.size, n, turn.want, logs())
			}
		}
	})
}
