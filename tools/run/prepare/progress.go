package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progress writes lines of what was done, and below them, on a terminal, one
// line of what is being done. Elsewhere that line is written now and then.
type progress struct {
	out      *os.File
	terminal bool
	began    time.Time

	mu     sync.Mutex // guards all below, and the order of what is written
	open   bool       // the last line is one to be overwritten
	logged time.Time  // when the changing line was last written
}

// How often the changing line is written.
const (
	onTerminal = 100 * time.Millisecond
	elsewhere  = 10 * time.Second
)

func newProgress(out *os.File, began time.Time) *progress {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &progress{out: out, terminal: err == nil, began: began, logged: time.Now()}
}

// line says something for good.
func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	fmt.Fprintf(p.out, "%4.0f s  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// now says what is being done, unless that was printed just before.
func (p *progress) now(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := elsewhere
	if p.terminal {
		pause = onTerminal
	}
	if time.Since(p.logged) < pause {
		return
	}
	p.clearLocked()
	fmt.Fprintf(p.out, "%4.0f s  %s", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
	if !p.terminal {
		fmt.Fprintln(p.out)
	}
	p.open, p.logged = p.terminal, time.Now()
}

// clear takes the changing line away.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
}

func (p *progress) clearLocked() {
	if p.open {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.open = false
	}
}

// Write takes the lines of others that tell their progress.
func (p *progress) Write(text []byte) (int, error) {
	for l := range strings.Lines(string(text)) {
		p.line("%s", strings.TrimRight(l, "\n"))
	}
	return len(text), nil
}
