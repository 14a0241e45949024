package status

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/eventlog"
)

// sickServer panics at the status of one pod, for the configured number of times.
type sickServer struct {
	*server
	sick  string
	times int
	at    []time.Duration
}

func (s *sickServer) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	if name == s.sick && len(s.at) < s.times {
		s.at = append(s.at, time.Since(s.begin))
		panic("at a status")
	}
	return s.server.PatchPodStatus(ctx, namespace, name, patch)
}

// The agent panics at the status of one pod three times. Each panic is recorded in an event of the pod,
// and the status is sent again after a doubling back-off; the status of another pod is not delayed.
func TestPanicDuringStatusUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &sickServer{server: &server{begin: time.Now()}, sick: "p", times: 3}
		cfg, events := quietly(s), &eventlog.Log{}
		cfg.Events = events
		w := NewWriter(cfg)
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		w.Publish(facts(running))
		synctest.Wait()
		well := facts(running)
		well.Pod.Name, well.Pod.UID = "well", "well"
		w.Publish(well)
		if got := s.writes(); len(got) != 1 || got[0].after != 0 {
			t.Errorf("wrote %v, want the status of another pod, at once", got)
		}
		time.Sleep(time.Minute)
		if got := s.writes(); len(got) != 2 || got[1].after != 1400*time.Millisecond {
			t.Errorf("wrote %v, want the status after 1.4 s", got)
		}
		want := []time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond}
		if !slices.Equal(s.at, want) {
			t.Errorf("panics at %v, want %v", s.at, want)
		}
		const event = "p Warning FailedSync error syncing pod: write its status: " +
			"internal error, the stack is in the agent's log: at a status"
		if !slices.Equal(events.Lines(), []string{event, event, event}) {
			t.Errorf("events %q", events.Lines())
		}
	})
}
