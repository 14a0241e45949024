package client

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestAggregationMatchesUpstream compares the aggregation with that of client-go, which other components use.
func TestAggregationMatchesUpstream(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		now := time.Unix(1_800_000_000, 0)
		clock := clocktesting.NewFakePassiveClock(now)
		theirs, ours := record.NewEventCorrelator(clock), newAggregator()
		dropped, counted, combined := 0, 0, 0
		for i := range 2000 {
			now = now.Add(time.Duration(random.IntN(40)) * time.Second)
			if random.IntN(200) == 0 {
				now = now.Add(20 * time.Minute)
			}
			clock.SetTime(now)
			pod := burstable.DeepCopy()
			pod.Name = fmt.Sprint("p", random.IntN(3))
			// For an eleventh message client-go drops a random one of ten. So there are fewer than ten messages that
			// are repeated.
			reason, message := "BackOff", fmt.Sprint("words ", random.IntN(8))
			if random.IntN(3) == 0 {
				reason, message = "FailedMount", fmt.Sprint("words of event ", i)
			}
			container := []string{"", "init"}[random.IntN(2)]
			e := newEvent(
				podReference(pod, container),
				"node1",
				[]string{"Normal", "Warning"}[random.IntN(2)],
				reason,
				message,
				now,
			)

			want, err := theirs.EventCorrelate(e.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			got, ok := ours.aggregate(e.DeepCopy(), now)
			if ok == want.Skip {
				t.Fatalf("seed %d: event %d is reported: %v, by others: %v", seed, i, ok, !want.Skip)
			}
			if !ok {
				dropped++
				continue
			}
			if !reflect.DeepEqual(got.Event, want.Event) || got.again != (want.Event.Count > 1) {
				t.Fatalf("seed %d: event %d is\n%+v, by others\n%+v", seed, i, got.Event, want.Event)
			}
			if got.again {
				counted++
				patch, err := got.patch()
				if err != nil || !sameJSON(t, patch, want.Patch) {
					t.Fatalf("seed %d: event %d: patch %s, by others %s", seed, i, patch, want.Patch)
				}
			}
			if got.Reason == "FailedMount" && got.Message != message {
				combined++
			}
			stored := got.Event.DeepCopy()
			stored.Count += int32(random.IntN(2)) // another client has counted too
			if got.Message == message {
				theirs.UpdateState(stored)
				ours.stored(got.key, stored)
			}
		}
		if dropped == 0 || counted == 0 || combined == 0 {
			t.Errorf("seed %d: %d dropped, %d counted, %d combined: too tame", seed, dropped, counted, combined)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	var x, y map[string]any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Error(err)
	}
	return reflect.DeepEqual(x, y)
}

// TestAggregatorIsBounded: a node whose pods come and go drops old entries.
func TestAggregatorIsBounded(t *testing.T) {
	g := newAggregator()
	for i := range 3 * eventsRemembered {
		p := &corev1.Pod{}
		p.Name = fmt.Sprint("p", i)
		g.aggregate(newEvent(podReference(p, ""), "node1", "Normal", "Started", "Container started",
			time.Unix(int64(i), 0)),
			time.Unix(int64(i), 0))
	}
	for name, n := range map[string]int{
		"alike":    g.similar.Len(),
		"recorded": g.known.Len(),
		"objects":  g.objects.Len(),
	} {
		if n != eventsRemembered {
			t.Errorf("%s: %d are cached, want %d", name, n, eventsRemembered)
		}
	}
}
