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

	"keelson/internal/host/clock"
	"keelson/internal/pods/reconcile"
)

// Handler handles plugins of one type. Calls for different sockets may be concurrent.
type Handler interface {
	// Validate validates the information of a plugin.
	Validate(name, endpoint string, versions []string) error
	// Register registers the plugin. It may be registered already.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister is called when the plugin's socket was removed. It must not affect a plugin with the same name at
	// another endpoint.
	Deregister(ctx context.Context, name, endpoint string) error
}

// Config holds the configuration of a Watcher. All fields but Watch and Dial are required.
type Config struct {
	Dir      string
	Dial     func(ctx context.Context, path string) (net.Conn, error) // nil: connect to a UNIX socket
	Handlers map[string]Handler                                       // by type
	// Watch enables file system events. Without them, the directory is read periodically.
	Watch bool
	Log   *slog.Logger
}

// Watcher registers the plugins whose sockets are in the directory or its subdirectories.
type Watcher struct {
	cfg  Config
	work *reconcile.Reconciler[string] // of paths

	mu         sync.Mutex
	life       context.Context          // of Run; nil before it
	sockets    map[string]*socket       // that exist, by path
	registered map[string]*registration // by path; a plugin whose socket was removed until it is deregistered
	full       bool                     // it was logged that there are too many sockets
}

// registration is a registered plugin and the socket by which it was found.
type registration struct {
	*plugin
	socket *socket
}

// socket is an existing socket.
type socket struct {
	path string
	id   identity

	// counted is set before the plugin's registration, and reset if that fails. Guarded by Watcher.mu.
	counted bool
}

// identity distinguishes a socket from another one with the same path.
type identity struct {
	dev, ino uint64
	changed  unix.Timespec
}

// New returns a Watcher. It watches nothing before Run.
func New(cfg Config) *Watcher {
	w := &Watcher{
		cfg:        cfg,
		sockets:    map[string]*socket{},
		registered: map[string]*registration{},
	}
	w.work = reconcile.New(reconcile.Config[string]{
		Part:    "plugins",
		Lock:    &w.mu,
		Begin:   w.beginLocked,
		Backoff: clock.Backoff(minRetry, maxRetry),
		Log:     cfg.Log,
	})
	return w
}

// Run registers plugins until ctx ends. They are not deregistered then.
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	w.life = ctx
	w.mu.Unlock()
	w.work.Start(ctx)
	defer w.work.Wait()
	if !w.cfg.Watch {
		return w.follow(ctx, nil, nil, func(string) error { return nil })
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		// The number of inotify instances is limited, and pods use them too.
		w.cfg.Log.Warn("failed to watch plugin registration directory, polling it",
			"period", pollEvery, "err", err)
		return w.follow(ctx, nil, nil, func(string) error { return nil })
	}
	defer watch.Close()
	return w.follow(ctx, watch.Events, watch.Errors, watch.Add)
}

// follow reads the directory on each event. It reads it periodically if there are no events (events is nil), or if a
// directory in it cannot be watched.
func (w *Watcher) follow(
	ctx context.Context, events <-chan fsnotify.Event, lost <-chan error, watch func(dir string) error,
) error {
	logged := ""
	for {
		var again <-chan time.Time
		err := w.scan(watch)
		if err != nil && err.Error() != logged {
			w.cfg.Log.Warn("failed to watch all of the plugin registration directory, polling it",
				"period", pollEvery, "err", err)
		}
		logged = ""
		if err != nil {
			logged = err.Error()
		}
		if err != nil || events == nil {
			again = time.After(pollEvery)
		}
		if err := wait(ctx, events, lost, again, w.cfg.Log); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// wait waits until the directory has to be read, or ctx ends.
func wait(
	ctx context.Context, events <-chan fsnotify.Event, lost <-chan error, again <-chan time.Time, log *slog.Logger,
) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			return nil
		case ev, ok := <-events:
			if !ok {
				return errors.New("watch plugin registration directory: watch ended")
			}
			if ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
				return nil
			}
		case err := <-lost:
			log.Warn("lost events of plugin registration directory, reading it again", "err", err)
			return nil
		}
	}
}

// scan reads the directory, which it creates if needed. It requests the registration of new sockets and the
// deregistration of removed ones. It returns an error if the directory could not be read or watched completely.
func (w *Watcher) scan(watch func(dir string) error) error {
	if err := os.MkdirAll(w.cfg.Dir, dirMode); err != nil {
		return fmt.Errorf("make plugin registration directory: %w", err)
	}
	there := map[string]identity{}
	var unwatched error
	err := filepath.WalkDir(w.cfg.Dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed in the meantime
		case err != nil:
			return err
		case path != w.cfg.Dir && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir():
			// Before its entries are read, so that none is missed.
			if err := watch(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				unwatched = fmt.Errorf("watch %s: %w", path, err)
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
			delete(w.sockets, path)
			w.changedLocked(path)
		}
	}
	for path, id := range there {
		if w.sockets[path] == nil {
			w.addLocked(path, id)
		}
	}
	return errors.Join(err, unwatched)
}

// identify returns the identity of a socket. Links are not followed, because their targets can change without an event.
func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return identity{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return identity{}, fmt.Errorf("%s is not a socket", path)
	}
	return identity{st.Dev, st.Ino, st.Ctim}, nil
}

// addLocked adds a socket.
func (w *Watcher) addLocked(path string, id identity) {
	if len(w.sockets) >= maxSockets {
		if !w.full {
			w.full = true
			w.cfg.Log.Error("too many sockets in plugin registration directory, ignoring the rest", "limit", maxSockets)
		}
		return
	}
	w.sockets[path] = &socket{
		path: path,
		id:   id,
	}
	w.changedLocked(path)
}

// changedLocked requests the registration or deregistration of the plugin at a path. A registration that is under way
// is cancelled.
func (w *Watcher) changedLocked(path string) {
	w.work.ResetLocked(path)
	w.work.CancelLocked(path)
	w.work.RequestLocked(path)
}

// beginLocked returns the next step for a path: a plugin is deregistered if its socket was removed or recreated, and
// then the one that is there now is registered.
func (w *Watcher) beginLocked(path string) reconcile.Attempt {
	s, r := w.sockets[path], w.registered[path]
	switch {
	case r != nil && r.socket != s:
		return w.deregistrationLocked(path, r)
	case r == nil && s != nil:
		return w.registrationLocked(path, s)
	}
	return reconcile.Attempt{
		Do:  func(context.Context) error { return nil },
		End: func(reconcile.Result) reconcile.Next { return reconcile.Next{} },
	}
}

func (w *Watcher) registrationLocked(path string, s *socket) reconcile.Attempt {
	log, ctx := w.cfg.Log.With("socket", path), w.life
	var p *plugin
	return reconcile.Attempt{
		Do: func(own context.Context) (err error) {
			p, err = w.register(ctx, own, s)
			return err
		},
		End: func(r reconcile.Result) reconcile.Next {
			switch {
			case r.Err == nil:
				w.registered[path] = &registration{p, s}
				return reconcile.Next{
					Then: func() {
						log.Info("plugin registered", "type", p.info.Type, "name", p.info.Name, "endpoint", p.endpoint)
					},
				}
			case r.Cancelled: // its socket was removed, or the agent ends
				return reconcile.Next{}
			}
			return reconcile.Next{
				Retry: true,
				Then:  func() { log.Warn("failed to register plugin", "retryAfter", r.Pause, "err", r.Err) },
			}
		},
	}
}

// deregistrationLocked returns the attempt to deregister a plugin, which is not repeated. It is cancelled when the
// agent ends, but not when the socket changes again.
func (w *Watcher) deregistrationLocked(path string, r *registration) reconcile.Attempt {
	log, ctx := w.cfg.Log.With("socket", path), w.life
	return reconcile.Attempt{
		Do: func(context.Context) error {
			log.Info("socket of plugin was removed, deregistering",
				"type", r.info.Type, "name", r.info.Name, "endpoint", r.endpoint)
			if err := w.deregister(ctx, r.plugin); err != nil {
				log.Warn("failed to deregister plugin", "name", r.info.Name, "err", err)
			}
			return nil
		},
		End: func(reconcile.Result) reconcile.Next {
			delete(w.registered, path)
			return reconcile.Next{Again: w.sockets[path] != nil}
		},
	}
}

var socketsDesc = prometheus.NewDesc("plugin_manager_total_plugins", "Number of plugins in Plugin Manager",
	[]string{"socket_path", "state"}, nil)

// Describe implements prometheus.Collector.
func (w *Watcher) Describe(ch chan<- *prometheus.Desc) { ch <- socketsDesc }

// Collect implements prometheus.Collector.
func (w *Watcher) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, s := range w.sockets {
		ch <- prometheus.MustNewConstMetric(socketsDesc, prometheus.GaugeValue, 1, path, "desired_state_of_world")
		if s.counted {
			ch <- prometheus.MustNewConstMetric(socketsDesc, prometheus.GaugeValue, 1, path, "actual_state_of_world")
		}
	}
}
