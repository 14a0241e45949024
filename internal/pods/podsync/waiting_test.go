package podsync

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"keelson/internal/pods/pod"
	"keelson/test/kit/eventlog"
)

// The log names the time at which a pod is rejected, if there is one.
func TestDevicePluginWaitIsLogged(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 9, 5, 0, time.UTC)
	for _, tc := range []struct {
		until time.Time
		want  string
	}{
		{time.Time{}, `msg="pod waits for device plugins" resources=[example.com/gpu]`},
		{until, `msg="pod waits for device plugins" resources=[example.com/gpu] until=2026-01-02T03:09:05.000Z`},
	} {
		var log bytes.Buffer
		m := newMeasured(t)
		m.cfg.Events = eventlog.Discard{}
		w := m.worker("u", podNamed("u", pod.SourceAPI))
		w.log = slog.New(slog.NewTextHandler(&log, nil))
		w.await(pod.Late{Resources: []string{"example.com/gpu"}, Until: tc.until})
		if got := strings.TrimSpace(log.String()); !strings.HasSuffix(got, tc.want) {
			t.Errorf("logged %s, want %s", got, tc.want)
		}
	}
}
