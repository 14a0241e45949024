package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// Handler is who plugins of one type are for. Calls for different sockets come at
// the same time.
type Handler interface {
	// Validate judges what a plugin says of itself.
	Validate(name, endpoint string, versions []string) error
	// Register takes the plugin. A plugin that is registered already has come anew.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister is called when the plugin's socket is gone. It must not touch a
	// plugin of that name that has come elsewhere since.
	Deregister(ctx context.Context, name, endpoint string) error
}

// Config holds what a Watcher is built from. Every field but Watch and Dial is
// required.
type Config struct {
	Dir      string
	Dial     func(ctx context.Context, path string) (net.Conn, error) // nil: a socket of the file system
	Handlers map[string]Handler                                       // by type
	// Watch is whether the file system tells of sockets. Without, the directory is
	// read now and then.
	Watch bool
	Log   *slog.Logger
}

// Watcher registers the plugins whose sockets are in a directory or below it.
type Watcher struct {
	cfg Config
	wg  sync.WaitGroup

	mu      sync.Mutex
	sockets map[string]*socket       // by path
	leaving map[string]chan struct{} // done of those that are gone, until they are deregistered
	full    bool                     // there are more; said once
}

// socket is one that is there.
type socket struct {
	path string
	id   identity
	stop context.CancelFunc
	done chan struct{} // closed when its goroutine has deregistered it

	// taken is set from before the plugin's registration on, until that fails. Guarded by
	// Watcher.mu.
	taken bool
}

// identity tells one socket from the next of the same name.
type identity struct {
	dev, ino uint64
	changed  unix.Timespec
}

// New builds a Watcher; nothing is watched before Run.
func New(cfg Config) *Watcher {
	return &Watcher{cfg: cfg, sockets: map[string]*socket{}, leaving: map[string]chan struct{}{}}
}

// Run registers plugins until ctx ends. They stay registered then: the next agent
// finds their sockets again.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.wg.Wait()
	if !w.cfg.Watch {
		return w.follow(ctx, nil, nil, func(string) error { return nil })
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		// There are only so many watches on a machine, and pods use them too.
		w.cfg.Log.Warn("cannot watch the plugin registration directory, reading it now and then", "every", pollEvery, "err", err)
		return w.follow(ctx, nil, nil, func(string) error { return nil })
	}
	defer watch.Close()
	return w.follow(ctx, watch.Events, watch.Errors, watch.Add)
}

// follow looks whenever something happens in the directory; where that is not told
// (events is nil), or not of all of it, now and then.
func (w *Watcher) follow(ctx context.Context, events <-chan fsnotify.Event, lost <-chan error, watch func(dir string) error) error {
	said := ""
	for {
		var again <-chan time.Time
		err := w.look(ctx, watch)
		if err != nil && err.Error() != said {
			w.cfg.Log.Warn("cannot follow all of the plugin registration directory, reading it now and then", "every", pollEvery, "err", err)
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
		if err != nil || events == nil {
			again = time.After(pollEvery)
		}
		if err := wait(ctx, events, lost, again, w.cfg.Log); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// wait returns when the directory is to be looked at again, or ctx ends.
func wait(ctx context.Context, events <-chan fsnotify.Event, lost <-chan error, again <-chan time.Time, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			return nil
		case ev, ok := <-events:
			if !ok {
				return errors.New("watch plugin registration directory: the watch has ended")
			}
			if ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
				return nil
			}
		case err := <-lost:
			log.Warn("lost events of the plugin registration directory, reading it again", "err", err)
			return nil
		}
	}
}

// look compares the directory, which it makes if there is none, with what is known. An
// event is only the occasion: what counts is what is there. The error is why more may
// be there, or come unheard of.
func (w *Watcher) look(ctx context.Context, watch func(dir string) error) error {
	if err := os.MkdirAll(w.cfg.Dir, dirMode); err != nil {
		return fmt.Errorf("make plugin registration directory: %w", err)
	}
	there := map[string]identity{}
	var deaf error
	err := filepath.WalkDir(w.cfg.Dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone in between; there is an event for it
		case err != nil:
			return err
		case path != w.cfg.Dir && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir():
			// Before its entries are read, so that none is missed.
			if err := watch(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				deaf = fmt.Errorf("watch %s: %w", path, err)
			}
		case e.Type()&fs.ModeSocket != 0:
			if id, err := identify(path); err == nil {
				there[path] = id
			}
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, s := range w.sockets {
		if id, ok := there[path]; !ok && err == nil || ok && id != s.id {
			s.stop()
			delete(w.sockets, path)
			w.leaving[path] = s.done
		}
	}
	for path, id := range there {
		if w.sockets[path] == nil {
			w.startLocked(ctx, path, id)
		}
	}
	return errors.Join(err, deaf)
}

// identify reads what a socket is. Links are not followed: what they lead to can
// change without an event.
func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return identity{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return identity{}, fmt.Errorf("%s is no socket", path)
	}
	return identity{st.Dev, st.Ino, st.Ctim}, nil
}

// startLocked begins to look after a socket, once the one of its name before it is
// deregistered.
func (w *Watcher) startLocked(ctx context.Context, path string, id identity) {
	if len(w.sockets) >= maxSockets {
		if !w.full {
			w.full = true
			w.cfg.Log.Error("too many sockets in the plugin registration directory, the rest is left", "limit", maxSockets)
		}
		return
	}
	own, stop := context.WithCancel(ctx)
	s := &socket{path: path, id: id, stop: stop, done: make(chan struct{})}
	before := w.leaving[path]
	w.sockets[path] = s
	w.wg.Go(func() {
		defer stop()
		defer w.left(s)
		if before != nil {
			<-before
		}
		w.serve(ctx, own, s)
	})
}

// left notes that a socket is looked after no more.
func (w *Watcher) left(s *socket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaving[s.path] == s.done {
		delete(w.leaving, s.path)
	}
	close(s.done)
}

// serve registers a plugin, as many times as it takes, and deregisters it when its
// socket is gone. own ends with the socket, ctx with the agent.
func (w *Watcher) serve(ctx, own context.Context, s *socket) {
	log := w.cfg.Log.With("socket", s.path)
	var p *plugin
	for delay := minRetry; p == nil; delay = min(2*delay, maxRetry) {
		var err error
		if p, err = w.register(ctx, own, s); err == nil {
			break
		}
		if own.Err() != nil {
			return
		}
		log.Warn("cannot register plugin", "retry", delay, "err", err)
		select {
		case <-own.Done():
			return
		case <-time.After(delay):
		}
	}
	log.Info("plugin registered", "type", p.info.Type, "name", p.info.Name, "endpoint", p.endpoint)
	<-own.Done()
	if ctx.Err() != nil {
		return
	}
	log.Info("plugin left", "type", p.info.Type, "name", p.info.Name, "endpoint", p.endpoint)
	if err := w.giveUp(ctx, p); err != nil {
		log.Warn("cannot deregister plugin", "name", p.info.Name, "err", err)
	}
}

var socketsDesc = prometheus.NewDesc("plugin_manager_total_plugins", "Number of plugins in Plugin Manager", []string{"socket_path", "state"}, nil)

// Describe names the metric.
func (w *Watcher) Describe(ch chan<- *prometheus.Desc) { ch <- socketsDesc }

// Collect tells which sockets there are, and whose plugins are registered or being so.
func (w *Watcher) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, s := range w.sockets {
		ch <- prometheus.MustNewConstMetric(socketsDesc, prometheus.GaugeValue, 1, path, "desired_state_of_world")
		if s.taken {
			ch <- prometheus.MustNewConstMetric(socketsDesc, prometheus.GaugeValue, 1, path, "actual_state_of_world")
		}
	}
}
