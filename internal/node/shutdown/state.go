package shutdown

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"keelson/internal/node/checkpoint"
)

// state is what is written down of the last shutdown. The end of one that has not
// ended is the zero time.
type state struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

func (w *Watcher) file() string { return filepath.Join(w.cfg.Dir, StateFile) }

// readState reads what an agent before this one has written. What cannot be read is
// put aside: it only tells of the past.
func (w *Watcher) readState() (state, error) {
	text, err := checkpoint.Read(w.file())
	if err != nil || text == nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return state{}, checkpoint.PutAside(w.file(), fmt.Errorf("read state: %w", err))
	}
	return s, nil
}

// writeState writes down how far the shutdown is, so that it outlives it.
func (w *Watcher) writeState(s state) {
	w.mu.Lock()
	w.state = s
	w.mu.Unlock()
	text, err := json.Marshal(s)
	if err == nil {
		err = checkpoint.Put(w.file(), text, checkpoint.How{Mode: 0o644, Sync: true})
	}
	if err != nil {
		w.cfg.Log.Warn("cannot write down how far the shutdown is", "err", err)
	}
}
