package cert

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// lookEvery is how long a look at the files is good for.
const lookEvery = time.Second

// reloaded is a value made from files, made anew when they change.
type reloaded[T any] struct {
	files []string
	load  func() (T, error)
	every time.Duration // negative: never look again
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo // of the files as last read, in good or bad state
	looked time.Time
}

// newReloaded reads the files for the first time.
func newReloaded[T any](load func() (T, error), reload bool, log *slog.Logger, files ...string) (*reloaded[T], error) {
	r := &reloaded[T]{files: files, load: load, every: lookEvery, log: log}
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

// get returns the value as of now.
func (r *reloaded[T]) get() T {
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
		return r.value // said before
	}
	// Remembered even if loading fails, so that bad content is reported once
	// and not with each request.
	r.seen = now
	if err == nil {
		var v T
		if v, err = r.load(); err == nil {
			r.value = v
			r.log.Info("certificate files changed", "files", r.files)
			return v
		}
	}
	r.log.Error("cannot reload certificate files, keeping the last good ones", "files", r.files, "err", err)
	return r.value
}

// stat returns nil if any file cannot be looked at.
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
