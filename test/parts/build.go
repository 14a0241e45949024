package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Builder finds parts in the cache and builds the missing ones.
type Builder struct {
	cache string // folder that holds parts/ and debian/
	pins  string // folder of the pinning modules
	out   io.Writer
}

// New returns a Builder that writes its progress to out. It searches for the checkout from the current folder upwards,
// so it works from any package of the checkout.
func New(out io.Writer) (*Builder, error) {
	root, err := Checkout()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return &Builder{cache: cache, pins: filepath.Join(root, "test", "parts"), out: out}, nil
}

// CacheDir returns the cache folder, which is outside the checkout and kept between runs.
func CacheDir() (string, error) {
	if d := os.Getenv("KEELSON_CACHE"); d != "" {
		return filepath.Abs(d)
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w (set KEELSON_CACHE)", err)
	}
	return filepath.Join(d, "keelson"), nil
}

// Checkout returns the folder of the project's go.mod.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find checkout: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module keelson\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find checkout: no go.mod of module keelson above the current folder")
		}
	}
}

// State describes a part without building it.
type State struct {
	Part    Part
	Version string
	Dir     string // where its programs are or will be
	Built   bool
	Given   bool // named by KEELSON_PART_<NAME>
}

// State returns the state of a part.
func (b *Builder) State(p Part) (State, error) {
	s := State{Part: p}
	given := os.Getenv(p.variable())
	if given == "path" {
		prog, err := exec.LookPath(p.Programs[0].Name)
		if err != nil {
			return s, fmt.Errorf("use %s from PATH (%s=path): %w", p.Name, p.variable(), err)
		}
		given = filepath.Dir(prog)
	}
	if given != "" {
		s.Version, s.Dir, s.Built, s.Given = "given", given, true, true
		for _, prog := range p.Programs {
			if _, err := os.Stat(filepath.Join(given, prog.Name)); err != nil {
				return s, fmt.Errorf("use part %s (%s): %w", p.Name, p.variable(), err)
			}
		}
		return s, nil
	}
	mod, err := os.ReadFile(filepath.Join(b.pins, p.Folder, "go.mod"))
	if err != nil {
		return s, fmt.Errorf("read pin of %s: %w", p.Name, err)
	}
	sum, err := os.ReadFile(filepath.Join(b.pins, p.Folder, "go.sum"))
	if err != nil {
		return s, fmt.Errorf("read pin of %s: %w", p.Name, err)
	}
	s.Version = pinned(string(mod), p.Pin)
	if s.Version == "" {
		return s, fmt.Errorf("read pin of %s: %s/go.mod does not require %s", p.Name, p.Folder, p.Pin)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\ncgo=%v\n%q\n", mod, sum, p.Flags.Cgo, p.commands(s.Version, ""))
	if err := b.writeSources(h, p); err != nil {
		return s, err
	}
	s.Dir = filepath.Join(b.cache, "parts", p.Name, s.Version+"-"+hex.EncodeToString(h.Sum(nil))[:12])
	_, err = os.Stat(s.Dir)
	s.Built = err == nil
	return s, nil
}

// writeSources writes the sources of those programs of a part that are kept beside the pinning modules.
func (b *Builder) writeSources(h io.Writer, p Part) error {
	for _, prog := range p.Programs {
		dir, ours := strings.CutPrefix(prog.Package, ownModules)
		if !ours {
			continue
		}
		files, err := filepath.Glob(filepath.Join(b.pins, dir, "*.*"))
		if err != nil {
			return fmt.Errorf("list sources of %s: %w", prog.Name, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("read sources of %s: %w", prog.Name, err)
			}
			fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(text), text)
		}
	}
	return nil
}

// variable returns the name of the environment variable that replaces the part.
func (p Part) variable() string {
	return "KEELSON_PART_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(p.Name))
}

// pinned returns the version of a module that a go.mod requires.
func pinned(mod, module string) string {
	for line := range strings.Lines(mod) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module && strings.HasPrefix(f[1], "v") {
			return f[1]
		}
	}
	return ""
}

// Path returns the path of a part's first program. It builds the part if necessary.
func (b *Builder) Path(ctx context.Context, part string) (string, error) {
	dir, err := b.Dir(ctx, part)
	if err != nil {
		return "", err
	}
	p, err := Named(part)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, p[0].Programs[0].Name), nil
}

// Dir returns the folder of a part's programs. It builds them if necessary.
func (b *Builder) Dir(ctx context.Context, part string) (string, error) {
	ps, err := Named(part)
	if err != nil {
		return "", err
	}
	if len(ps) != 1 {
		return "", fmt.Errorf("find part %q: it is a group", part)
	}
	s, err := b.State(ps[0])
	if err != nil || s.Built {
		return s.Dir, err
	}
	return s.Dir, b.make(ctx, s)
}

// make builds one missing part. Because of the lock, a second run waits for the result of the first.
func (b *Builder) make(ctx context.Context, s State) error {
	home := filepath.Dir(s.Dir)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return fmt.Errorf("make part %s: %w", s.Part.Name, err)
	}
	unlock, err := lock(filepath.Join(home, "lock"),
		func() { b.say("%s %s: another run is at it, waiting", s.Part.Name, s.Version) })
	if err != nil {
		return fmt.Errorf("make part %s: %w", s.Part.Name, err)
	}
	defer unlock()
	if _, err := os.Stat(s.Dir); err == nil {
		return nil
	}
	tmp, err := scratch(home)
	if err != nil {
		return fmt.Errorf("make part %s: %w", s.Part.Name, err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("make part %s: %w", s.Part.Name, err)
	}

	b.say("%s %s: building (about %s cold on two cores)", s.Part.Name, s.Version, roughly(s.Part.Minutes))
	start := time.Now()
	if err := b.compile(ctx, s, tmp, start); err != nil {
		return fmt.Errorf("build part %s %s: %w", s.Part.Name, s.Version, err)
	}
	if err := verify(ctx, s, tmp); err != nil {
		return fmt.Errorf("verify part %s: %w", s.Part.Name, err)
	}
	if err := os.Rename(tmp, s.Dir); err != nil {
		return fmt.Errorf("keep part %s: %w", s.Part.Name, err)
	}
	b.say("%s %s: ready after %d s", s.Part.Name, s.Version, int(time.Since(start).Seconds()))
	return nil
}

// scratch makes a temporary folder in home, and removes those of runs that were killed. The caller holds the lock of
// home, so no other process uses them.
func scratch(home string) (string, error) {
	old, err := filepath.Glob(filepath.Join(home, "tmp-*"))
	if err != nil {
		return "", err
	}
	for _, o := range old {
		if err := os.RemoveAll(o); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(home, "tmp-")
}

// compile runs the go commands of a part and prints its progress every half minute.
func (b *Builder) compile(ctx context.Context, s State, into string, start time.Time) error {
	beat := time.NewTicker(30 * time.Second)
	defer beat.Stop()
	for _, args := range s.Part.commands(s.Version, into) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = filepath.Join(b.pins, s.Part.Folder)
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED="+map[bool]string{
			true:  "1",
			false: "0",
		}[s.Part.Flags.Cgo])
		var logged bytes.Buffer
		cmd.Stdout, cmd.Stderr = &logged, &logged
		if err := cmd.Start(); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
	wait:
		for {
			select {
			case <-beat.C:
				b.say("%s %s: still building, %d s", s.Part.Name, s.Version, int(time.Since(start).Seconds()))
			case err := <-done:
				if err != nil {
					return fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, tail(logged.String(), 20),
						advice(logged.String()))
				}
				break wait
			}
		}
	}
	return nil
}

// advice names the Debian package that is missing, if a build failed for lack of one.
func advice(logged string) string {
	switch {
	case strings.Contains(logged, "libseccomp"), strings.Contains(logged, "seccomp.h"),
		strings.Contains(logged, "pkg-config"):
		return "\nDebian packages libseccomp-dev and pkg-config are needed: run test/parts/deps.sh"
	case strings.Contains(logged, `C compiler "gcc" not found`):
		return "\nDebian package gcc is needed: run test/parts/deps.sh"
	}
	return ""
}

// verify runs the part's first program and checks the version that it prints.
func verify(ctx context.Context, s State, dir string) error {
	prog := filepath.Join(dir, s.Part.Programs[0].Name)
	out, err := exec.CommandContext(ctx, prog, s.Part.Ask...).CombinedOutput()
	want := s.Part.Says
	if want == "" {
		want = strings.TrimPrefix(s.Version, "v")
	}
	if !strings.Contains(string(out), want) {
		return fmt.Errorf("%s %s does not print %s: %v\n%s", s.Part.Programs[0].Name, strings.Join(s.Part.Ask, " "),
			want, err, tail(string(out), 5))
	}
	return nil
}

func (b *Builder) say(format string, args ...any) {
	fmt.Fprintf(b.out, format+"\n", args...)
}

// lock takes an exclusive lock on a file, calling busy first if it has to wait.
func lock(path string, busy func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		busy()
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

func roughly(minutes float64) string {
	if minutes < 1 {
		return fmt.Sprintf("%.0f s", minutes*60)
	}
	return fmt.Sprintf("%.0f min", minutes)
}

// tail returns the last n lines of a text.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
