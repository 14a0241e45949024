package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progress prints a line for each finished step. On a terminal it prints below them one line about the current step,
// which is overwritten. Otherwise that line is printed from time to time.
type progress struct {
	out      *os.File
	terminal bool
	began    time.Time

	mu     sync.Mutex // guards all below, and the order of what is written
	open   bool       // the last line will be overwritten
	logged time.Time  // when the line about the current step was last printed
}

// How often the line about the current step is printed.
const (
	onTerminal = 100 * time.Millisecond
	elsewhere  = 10 * time.Second
)

func newProgress(out *os.File, began time.Time) *progress {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &progress{out: out, terminal: err == nil, began: began, logged: time.Now()}
}

// line prints a line that is not overwritten.
func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	fmt.Fprintf(p.out, "%4.0f s  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// now prints the current step, unless one was printed just before.
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

// clear removes the line about the current step.
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

// Write prints the progress of other packages.
func (p *progress) Write(text []byte) (int, error) {
	for l := range strings.Lines(string(text)) {
		p.line("%s", strings.TrimRight(l, "\n"))
	}
	return len(text), nil
}
