package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestJournal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(w.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]bool{
		fmt.Sprintf("%d:%d", st.Dev, st.Ino):   true,
		fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false,
		"":                                     false,
		"x:y":                                  false,
	} {
		if got := toJournal(w, stream); got != want {
			t.Errorf("JOURNAL_STREAM=%q: %v", stream, got)
		}
	}
	var out bytes.Buffer
	log := slog.New(newJournalHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})).With("part", "x")
	log.Error("one", "err", "a b")
	log.Warn("two")
	log.Info("three")
	log.Debug("four")
	want := "<3>level=ERROR msg=one part=x err=\"a b\"\n<4>level=WARN msg=two part=x\n<6>level=INFO msg=three " +
		"part=x\n<7>level=DEBUG msg=four part=x\n"
	if out.String() != want {
		t.Errorf("wrote\n%swant\n%s", &out, want)
	}
}
