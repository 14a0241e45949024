package cert

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// checkPeriod is the minimum interval between checks of the files.
const checkPeriod = time.Second

// reloadable is a value from files that is reloaded when they change.
type reloadable[T any] struct {
	files []string
	load  func() (T, error)
	every time.Duration // negative: never reload
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo // of the files when they were last read
	looked time.Time
}

// newReloadable loads the value.
func newReloadable[T any](load func() (T, error), reload bool, log *slog.Logger, files ...string) (*reloadable[T],
	error) {
	r := &reloadable[T]{files: files, load: load, every: checkPeriod, log: log}
	if !reload {
		r.every = -1
	}
	var err error
	if r.seen, err = stat(files); err != nil {
		return nil, err
	}
	if r.value, err = load(); err != nil {
		return nil, err
	}
	r.looked = time.Now()
	return r, nil
}

// get returns the current value.
func (r *reloadable[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.every < 0 || time.Since(r.looked) < r.every {
		return r.value
	}
	r.looked = time.Now()
	now, err := stat(r.files)
	if err == nil && slices.EqualFunc(now, r.seen, unchanged) {
		return r.value
	}
	if err != nil && r.seen == nil {
		return r.value // already logged
	}
	// Set even if loading fails, so that invalid content is logged once and not for each request.
	r.seen = now
	if err == nil {
		var v T
		if v, err = r.load(); err == nil {
			r.value = v
			r.log.Info("reloaded certificate files", "files", r.files)
			return v
		}
	}
	r.log.Error("failed to reload certificate files, using the last valid ones", "files", r.files, "err", err)
	return r.value
}

// stat returns an error if any of the files does not exist.
func stat(files []string) ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(files))
	for i, f := range files {
		var err error
		if infos[i], err = os.Stat(f); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
