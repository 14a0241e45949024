package shutdown

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"keelson/internal/host/checkpoint"
)

// state is the checkpoint of the last shutdown. EndTime is zero while the shutdown is in progress.
type state struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

func (w *Watcher) file() string { return filepath.Join(w.cfg.Dir, StateFile) }

// readState reads the checkpoint. One that cannot be used is set aside.
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

// writeState writes the checkpoint with sync, so that it survives the shutdown.
func (w *Watcher) writeState(s state) {
	w.mu.Lock()
	w.state = s
	w.mu.Unlock()
	text, err := json.Marshal(s)
	if err == nil {
		err = checkpoint.Put(w.file(), text, checkpoint.How{Mode: 0o644, Sync: true})
	}
	if err != nil {
		w.cfg.Log.Warn("failed to write checkpoint of node shutdown", "err", err)
	}
}
