package podsync

import (
	"testing"
	"time"

	"keelson/internal/pods/podplan"
)

// However much is put into a mailbox, what it holds is bounded, and of evictions the earliest deadline counts.
func TestMailboxIsBounded(t *testing.T) {
	b := newMailbox()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 1000 {
		b.wake()
		b.force()
		b.discard()
		b.adopt()
		b.request(request{
			EvictionRecord: podplan.EvictionRecord{
				Deadline: at.Add(-time.Duration(i) * time.Second),
				AtOnce:   i == 500,
			},
			record: i == 0,
		})
	}
	if len(b.ready) != 1 {
		t.Errorf("%d signals", len(b.ready))
	}
	m := b.take()
	if !m.wake || !m.force || !m.discard || !m.adopt {
		t.Errorf("lost a signal: %+v", m)
	}
	if len(m.requests) != 2 || !m.requests[0].record || !m.requests[0].Deadline.Equal(at) {
		t.Fatalf("requests %+v", m.requests)
	}
	if last := m.requests[1]; !last.AtOnce || !last.Deadline.Equal(at.Add(-999*time.Second)) {
		t.Errorf("the merged request is %+v", last)
	}
	if !b.empty() {
		t.Error("the mailbox is not empty after it was emptied")
	}
}

// A question needs no turn, unless there is something else.
func TestNeedsTurn(t *testing.T) {
	b := newMailbox()
	b.ask(nil)
	if m := b.take(); m.needsTurn() {
		t.Error("a question alone has the pod looked at")
	}
	b.ask(nil)
	b.finished(finished{})
	if b.empty() {
		t.Error("it is empty")
	}
	if m := b.take(); !m.needsTurn() || len(m.ask) != 1 || len(m.finished) != 1 {
		t.Errorf("%+v", m)
	}
}
