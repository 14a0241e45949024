package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// book is the ledger of a rig: it lists what the rig made outside its folder. Each entry is written before the thing
// is made, so that none is missing.
type book struct {
	path string

	mu   sync.Mutex // guards all below, and the file
	page page
	live map[string]*process // started by this process
}

// page is the content of the ledger's file.
type page struct {
	Number    number
	Purpose   string
	Detached  bool
	Owner     who
	Processes []entry           // in the order they were started
	Absent    []string          // folders made by other programs that did not exist before
	Kernel    map[string]string // former values of the settings that programs of a rig change
	NoChains  bool              // the port mapper's chains did not exist before
	Path      []string          // folders to search for iptables
	Exports   map[string]string // values for later commands
}

// who identifies a process. The start time distinguishes it from a later process with the same number.
type who struct {
	Pid   int
	Start string // of /proc/<pid>/stat, in clock ticks since boot
}

// entry is one program of the rig.
type entry struct {
	Name string
	Kind string // "kubelet", "control" or "runtime": they are ended in this order
	who
}

func openBook(dir string, n number, cfg Config) (*book, error) {
	b := &book{path: filepath.Join(dir, ledger), live: map[string]*process{}}
	b.page = page{Number: n, Purpose: cfg.Purpose, Detached: cfg.Detached, Exports: map[string]string{}}
	me, err := identify(os.Getpid())
	if err != nil {
		return b, err
	}
	b.page.Owner = me
	for _, d := range strayFolders {
		if _, err := os.Lstat(d); errors.Is(err, fs.ErrNotExist) {
			b.page.Absent = append(b.page.Absent, d)
		}
	}
	if b.page.Kernel, err = readKernel(procSys); err != nil {
		return b, err
	}
	b.inherit()
	return b, b.write()
}

// inherit copies from the ledgers of the other rigs the state of the machine before any rig.
func (b *book) inherit() {
	for _, other := range books() {
		if other.page.Number == b.page.Number {
			continue
		}
		b.page.Kernel = other.page.Kernel
		b.page.Absent = union(b.page.Absent, other.page.Absent)
		b.page.NoChains = b.page.NoChains || other.page.NoChains
	}
}

func union(a, b []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, d := range strayFolders { // keeps the order: children first
		for _, x := range append(append([]string{}, a...), b...) {
			if x == d && !seen[d] {
				seen[d] = true
				out = append(out, d)
			}
		}
	}
	return out
}

// books reads the ledgers of all existing rigs. It skips a ledger that cannot be read, because its rig is just being
// made or removed.
func books() []*book {
	files, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", ledger))
	if err != nil {
		return nil // the pattern is a constant
	}
	var out []*book
	for _, f := range files {
		b := &book{path: f, live: map[string]*process{}}
		data, err := os.ReadFile(f)
		if err != nil || json.Unmarshal(data, &b.page) != nil {
			continue
		}
		out = append(out, b)
	}
	return out
}

// note changes the page and writes it.
func (b *book) note(change func(*page)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.page)
	return b.write()
}

func (b *book) write() error {
	data, err := json.MarshalIndent(&b.page, "", "  ")
	if err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	tmp := b.path + ".part"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	if err := os.Rename(tmp, b.path); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

func (b *book) dir() string { return filepath.Dir(b.path) }

// Sweep removes the rigs whose owner process has ended, except the detached ones.
func Sweep(ctx context.Context, log *slog.Logger) error {
	return remove(ctx, log, func(p page) bool { return !p.Detached && !p.Owner.alive() })
}

// Remove removes the rigs of a purpose that are detached or whose owner has ended, and returns their number.
func Remove(ctx context.Context, log *slog.Logger, purpose string) (int, error) {
	n := 0
	err := remove(ctx, log, func(p page) bool {
		ours := p.Purpose == purpose && (p.Detached || !p.Owner.alive())
		if ours {
			n++
		}
		return ours
	})
	return n, err
}

// Found is a rig that another process opened.
type Found struct {
	Dir     string
	Exports map[string]string // what its owner published with Export
}

// Find lists the rigs of a purpose.
func Find(purpose string) []Found {
	var out []Found
	for _, b := range books() {
		if b.page.Purpose == purpose {
			out = append(out, Found{Dir: b.dir(), Exports: b.page.Exports})
		}
	}
	return out
}

// Export keeps a value in the ledger for later commands to Find.
func (r *Rig) Export(name, value string) error {
	return r.book.note(func(p *page) { p.Exports[name] = value })
}

func remove(ctx context.Context, log *slog.Logger, which func(page) bool) error {
	var errs []error
	for _, b := range books() {
		if !which(b.page) {
			continue
		}
		log.Info("removing a rig", "dir", b.dir(), "purpose", b.page.Purpose)
		if err := b.demolish(ctx, log); err != nil {
			errs = append(errs, fmt.Errorf("remove rig %s: %w", b.dir(), err))
		}
	}
	return errors.Join(errs...)
}
