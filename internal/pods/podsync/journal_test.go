package podsync

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// records keeps the restarts that were recorded last.
type records struct {
	mu     sync.Mutex
	last   Restarts
	writes int
}

func (r *records) NoteRestarts(_ types.UID, now Restarts) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.writes = now, r.writes+1
	return nil
}
func (r *records) Restarts(types.UID) (Restarts, error) { return Restarts{}, nil }

// Tasks that write at the same time do not lose what others have noted.
func TestJournalKeepsAllNotes(t *testing.T) {
	disk := &records{}
	r := newRestarts("u", disk)
	log := slog.New(slog.DiscardHandler)
	var tasks sync.WaitGroup
	want := []string{"a", "b", "c", "d"}
	for _, id := range want {
		r.recordStop(id)
		tasks.Go(func() { r.journal.flush(log) })
	}
	r.recreated["main"] = 2
	r.record()
	tasks.Go(func() { r.journal.flush(log) })
	tasks.Wait()
	if !slices.Equal(disk.last.StoppedForRestart, want) || !maps.Equal(disk.last.Anew, map[string]int{"main": 2}) {
		t.Errorf("recorded %+v", disk.last)
	}
	before := disk.writes
	r.record()
	r.journal.flush(log)
	if disk.writes != before {
		t.Error("what is recorded already was written again")
	}
}

// What an earlier agent has recorded is kept over the next write, until its containers are gone.
func TestJournalKeepsEarlierNotes(t *testing.T) {
	disk := &records{}
	r := newRestarts("u", disk)
	r.recover(Restarts{StoppedForRestart: []string{"a"}, Anew: map[string]int{"main": 1}})
	r.recordStop("b")
	r.journal.flush(slog.New(slog.DiscardHandler))
	if !slices.Equal(disk.last.StoppedForRestart, []string{"a", "b"}) || disk.last.Anew["main"] != 1 {
		t.Errorf("recorded %+v", disk.last)
	}
	r.keep(pod.Runtime{Containers: []pod.Container{{ID: "b"}}})
	if len(r.stoppedForRestart) != 1 || !r.stoppedForRestart["b"] {
		t.Errorf("stopped for restart: %v", r.stoppedForRestart)
	}
}
