package desired

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"keelson/internal/host/clock"
	"keelson/internal/pods/manifest"
	"keelson/internal/pods/pod"
)

// FilesConfig holds what a Files source is built from. Every field but Changes is required.
type FilesConfig struct {
	Path   string        // a directory of manifests, or one manifest; it need not exist
	Period time.Duration // between two full reads, in case a notification was lost
	Watch  bool          // false: full reads only
	// Changes reports changes while the kernel's notifications are not used. Nil without Watch: full reads only.
	Changes  <-chan fsnotify.Event
	Manifest manifest.Compiler
	Events   pod.Events
	Log      *slog.Logger
}

// Files is the source of static pods: it reads their manifests from files of this machine.
//
// Each read looks at every file: notifications only trigger it. The last content of each
// file is remembered, so an unchanged file is not parsed again and an invalid one is
// reported once.
type Files struct {
	cfg      FilesConfig
	known    map[string]*manifestFile // by path
	unlisted bool                     // the last listing failed
	restored map[types.UID]bool       // pods of files that were removed before the last read
}

// manifestFile is what is remembered of one file.
type manifestFile struct {
	stamp   stamp
	sum     [sha256.Size]byte
	pod     *v1.Pod // of the last good version; nil if there was none
	bad     string  // what is wrong with the present version
	removed bool    // the watch reported that it was removed or renamed, and it was not read since
}

// stamp shows, without reading the file, whether it may have changed.
type stamp struct {
	size    int64
	changed time.Time
	file    string // device and inode
}

// NewFiles makes the source.
func NewFiles(cfg FilesConfig) *Files {
	cfg.Path = filepath.Clean(cfg.Path)
	return &Files{cfg: cfg, known: map[string]*manifestFile{}, restored: map[types.UID]bool{}}
}

// Name is "file".
func (f *Files) Name() pod.Source { return pod.SourceFile }

// Run reads the manifests whenever they change, and every Period.
func (f *Files) Run(ctx context.Context, to Sink) error {
	w := &pathWatch{path: f.cfg.Path, given: f.cfg.Changes, log: f.cfg.Log, backoff: watchBackoff}
	defer w.close()
	period := time.NewTicker(f.cfg.Period)
	defer period.Stop()
	delivered := false
	for {
		var retry time.Duration
		if f.cfg.Watch {
			retry = w.ensure()
		}
		pods, again := f.read(time.Now())
		// The first delivery waits until every file was listed and has settled: a pod that is
		// missing from it would be terminated as removed.
		if delivered || again == 0 && !f.unlisted {
			if left := f.withoutRestored(pods); len(left) < len(pods) {
				to.Replace(left)
			}
			to.Replace(pods)
			delivered = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-period.C:
		case <-after(retry):
		case <-after(again):
		case e := <-w.changes():
			f.noteRemoved(e)
			w.drain(ctx, f.noteRemoved)
		case err := <-w.errors():
			// Notifications may have been lost; the read that follows does not
			// need them.
			f.cfg.Log.Warn("failed to watch manifests", "path", f.cfg.Path, "err", err)
		}
	}
}

// after is a timer, or never for zero.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// read reads all files, in the order of their names. again is the time until the next read
// because a file is being written; zero if none is.
func (f *Files) read(now time.Time) (pods []*v1.Pod, again time.Duration) {
	paths, err := f.list()
	f.unlisted = err != nil
	if err != nil {
		f.failed(f.cfg.Path, f.entry(f.cfg.Path), err)
		return f.keep(), 0 // unreadable is not empty
	}
	present := make(map[string]bool, len(paths))
	for _, path := range paths {
		present[path] = true
		if wait := f.readFile(path, now); wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	maps.DeleteFunc(f.known, func(path string, e *manifestFile) bool {
		if !present[path] {
			f.noteRestored(e)
		}
		return !present[path]
	})
	return f.keep(), again
}

// noteRemoved records a removal that the watch reports. A file that is removed and
// restored at once with the same text ends one pod and starts another, which no read can
// show. A file that is renamed into its place is no removal.
func (f *Files) noteRemoved(e fsnotify.Event) {
	if known, ok := f.known[filepath.Clean(e.Name)]; ok && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
		known.removed = true
	}
}

// noteRestored remembers the pod of a file that was removed and whose present state is
// known now: it is there again, or not.
func (f *Files) noteRestored(e *manifestFile) {
	if e.removed && e.pod != nil {
		f.restored[e.pod.UID] = true
	}
	e.removed = false
}

// withoutRestored returns the pods without those whose files were removed and restored
// since the last call.
func (f *Files) withoutRestored(pods []*v1.Pod) []*v1.Pod {
	left := slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return f.restored[p.UID] })
	clear(f.restored)
	return left
}

// keep returns the pods of the last good versions, in the order of their files.
func (f *Files) keep() []*v1.Pod {
	var pods []*v1.Pod
	for _, path := range slices.Sorted(maps.Keys(f.known)) {
		if p := f.known[path].pod; p != nil {
			pods = append(pods, p)
		}
	}
	return pods
}

// list returns the paths of the manifests; none if the path does not exist.
func (f *Files) list() ([]string, error) {
	info, err := os.Stat(f.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{f.cfg.Path}, nil
	}
	entries, err := os.ReadDir(f.cfg.Path) // sorted
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(f.cfg.Path, e.Name()))
		}
	}
	return paths, nil
}

func (f *Files) entry(path string) *manifestFile {
	e, ok := f.known[path]
	if !ok {
		e = &manifestFile{}
		f.known[path] = e
	}
	return e
}

// readFile updates the entry of one file. It returns how long to wait for a file that is
// being written.
func (f *Files) readFile(path string, now time.Time) (wait time.Duration) {
	e := f.entry(path)
	info, err := os.Stat(path) // through symbolic links
	if err != nil {
		if _, lerr := os.Lstat(path); errors.Is(lerr, fs.ErrNotExist) {
			delete(f.known, path) // removed since the directory was read
			return 0
		}
		f.failed(path, e, err)
		return 0
	}
	if !info.Mode().IsRegular() {
		f.failed(path, e, fmt.Errorf("%s is not a regular file", kindOf(info.Mode())))
		return 0
	}
	s := stampOf(info)
	if s == e.stamp {
		return 0
	}
	if age := now.Sub(info.ModTime()); 0 <= age && age < settle {
		return settle - age
	}
	text, err := readLimited(path)
	if err != nil {
		f.failed(path, e, err)
		return 0
	}
	e.stamp = s
	sum := digest(text)
	if sum == e.sum {
		if e.bad == "" {
			f.noteRestored(e)
		}
		return 0
	}
	e.sum = sum
	p, unknown, err := f.cfg.Manifest.File(path, text)
	if err != nil {
		f.note(path, e, err.Error())
		return 0
	}
	f.noteRestored(e)
	if e.bad != "" {
		f.cfg.Log.Info("manifest is valid again", "file", path, "pod", p.Namespace+"/"+p.Name)
	}
	e.pod, e.bad = p, ""
	if len(unknown) > 0 {
		f.cfg.Log.Warn("ignored unknown fields of manifest", "file", path, "fields", strings.Join(unknown, ", "))
	}
	return 0
}

// failed reports a file that cannot be read, and drops its content so that the next read
// tries again.
func (f *Files) failed(path string, e *manifestFile, err error) {
	e.stamp, e.sum = stamp{}, [sha256.Size]byte{}
	f.note(path, e, fmt.Sprintf("read manifest: %v", err))
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// note reports why a file is invalid, once for each cause.
func (f *Files) note(path string, e *manifestFile, what string) {
	e.removed = false // the new file has no valid pod, so the old pod keeps running
	if e.bad == what {
		return
	}
	e.bad = what
	message := fmt.Sprintf("Manifest %s: %s", path, what)
	if e.pod != nil {
		message += "; pod " + e.pod.Namespace + "/" + e.pod.Name + " keeps running with its last valid manifest"
	}
	f.cfg.Log.Error("invalid manifest", "file", path, "err", what, "keepsLastGood", e.pod != nil)
	f.cfg.Events.Node(v1.EventTypeWarning, pod.EventFailedValidation, message)
}

// readLimited reads a whole file of reasonable size.
func readLimited(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(file, maxManifest+1)); err != nil {
		return nil, err
	}
	if b.Len() > maxManifest {
		return nil, fmt.Errorf("larger than %d MiB", maxManifest>>20)
	}
	return b.Bytes(), nil
}

// pathWatch watches the directory that holds the manifests. For a single manifest that is
// its parent, because an editor replaces the file by a new one. While the path does not
// exist, the nearest parent that does is watched.
type pathWatch struct {
	path    string
	given   <-chan fsnotify.Event // replaces the events of w
	dir     fs.FileInfo           // what is watched
	missing bool                  // dir is a parent of a path that does not exist
	log     *slog.Logger
	w       *fsnotify.Watcher
	backoff wait.Backoff
	warned  bool // the failure was logged
}

// ensure starts the watch unless it runs. It returns the time until the next attempt. A
// path that does not exist is tried again, too: inotify reports neither a mount nor the
// target of a symbolic link.
func (p *pathWatch) ensure() time.Duration {
	if p.watching() {
		return p.wait()
	}
	p.close()
	err := p.start()
	switch {
	case err == nil:
		p.warned = false
	case !p.warned:
		p.log.Warn("failed to watch manifests; reading them periodically", "path", p.path, "err", err)
		p.warned = true
	}
	return p.wait()
}

// watching reports whether the watch is on the directory that target returns.
func (p *pathWatch) watching() bool {
	if p.w == nil || len(p.w.WatchList()) == 0 {
		return false
	}
	_, now, missing, err := p.target()
	return err == nil && missing == p.missing && os.SameFile(now, p.dir)
}

// watchBackoff is the back-off of attempts to watch the path.
var watchBackoff = clock.Backoff(minWatchRetry, maxWatchRetry)

// wait is the time until the next attempt; zero if the path is watched.
func (p *pathWatch) wait() time.Duration {
	if p.w != nil && !p.missing {
		p.backoff = watchBackoff
		return 0
	}
	return p.backoff.Step()
}

// target returns the directory to watch. missing: it is a parent of a path that does not exist.
func (p *pathWatch) target() (dir string, info fs.FileInfo, missing bool, err error) {
	dir = p.path
	info, err = os.Stat(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir, missing = filepath.Dir(dir), true
		info, err = os.Stat(dir)
	}
	if err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	return dir, info, missing, err
}

func (p *pathWatch) start() error {
	dir, info, missing, err := p.target()
	if err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := w.Add(dir); err != nil {
		return errors.Join(err, w.Close())
	}
	p.w, p.dir, p.missing = w, info, missing
	return nil
}

func (p *pathWatch) changes() <-chan fsnotify.Event {
	if p.w == nil {
		return p.given
	}
	return p.w.Events
}

func (p *pathWatch) errors() <-chan error {
	if p.w == nil {
		return nil
	}
	return p.w.Errors
}

// drain waits until a burst of changes is over, such as the renames and writes of an
// editor; at most ten times quiet.
func (p *pathWatch) drain(ctx context.Context, each func(fsnotify.Event)) {
	limit := time.NewTimer(10 * quiet)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-limit.C:
			return
		case <-time.After(quiet):
			return
		case e := <-p.changes():
			each(e)
		}
	}
}

// quiet is the pause that ends a burst of changes.
const quiet = 10 * time.Millisecond

func (p *pathWatch) close() {
	if p.w == nil {
		return
	}
	if err := p.w.Close(); err != nil {
		p.log.Warn("failed to close watch of manifests", "path", p.path, "err", err)
	}
	p.w = nil
}

// digest shows whether the text of a manifest has changed.
func digest(text []byte) [sha256.Size]byte { return sha256.Sum256(text) }
