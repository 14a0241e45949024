package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// teller writes what happens, with the seconds since the beginning.
type teller struct {
	out   io.Writer
	began time.Time
}

func (t *teller) step(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	// Further lines stand below the first one's text.
	text = strings.ReplaceAll(text, "\n", "\n        ")
	fmt.Fprintf(t.out, "%4.0f s  %s\n", time.Since(t.began).Seconds(), text)
}

// plain writes text as it is.
func (t *teller) plain(text string) { fmt.Fprint(t.out, text) }

// Write takes the lines of others that tell their progress.
func (t *teller) Write(text []byte) (int, error) {
	for l := range strings.Lines(string(text)) {
		t.step("%s", strings.TrimRight(l, "\n"))
	}
	return len(text), nil
}
