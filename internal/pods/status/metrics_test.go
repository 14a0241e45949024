package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

func TestStatusSyncDuration(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-15")
	writing(t, func(t *testing.T, s *server, w *Writer) {
		const metric = "kubelet_pod_status_sync_duration_seconds"
		expect := func(count, sum float64) {
			t.Helper()
			n, total := scrape.Of(t, w)[metric], scrape.Sums(t, w)[metric]
			if n != count || total < sum-0.001 || total > sum+0.001 {
				t.Errorf("%v statuses took %v s, want %v that took %v s", n, total, count, sum)
			}
		}
		w.Publish(facts()) // waits for more
		time.Sleep(hold / 2)
		w.Publish(facts(running))
		synctest.Wait()
		expect(1, (hold / 2).Seconds())
		w.Publish(facts(running))
		time.Sleep(time.Minute)
		expect(1, (hold / 2).Seconds())

		s.failOnce(context.DeadlineExceeded)
		w.Publish(facts(crashed))
		time.Sleep(time.Minute)
		expect(2, (hold/2 + firstPause).Seconds())
	})
}
