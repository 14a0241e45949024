package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// reporter prints steps, with the seconds since the start.
type reporter struct {
	out   io.Writer
	began time.Time
}

func (t *reporter) step(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	// Further lines stand below the first one's text.
	text = strings.ReplaceAll(text, "\n", "\n        ")
	fmt.Fprintf(t.out, "%4.0f s  %s\n", time.Since(t.began).Seconds(), text)
}

// plain writes text as it is.
func (t *reporter) plain(text string) { fmt.Fprint(t.out, text) }

// Write prints the progress of other packages.
func (t *reporter) Write(text []byte) (int, error) {
	for l := range strings.Lines(string(text)) {
		t.step("%s", strings.TrimRight(l, "\n"))
	}
	return len(text), nil
}
