package panics

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

func TestTry(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	failure := errors.New("no such volume")
	if err := Try(logger, "volumes", func() error { return failure }); err != failure || log.Len() > 0 {
		t.Errorf("a failure: %v, logged %q", err, &log)
	}
	var broken map[string]int
	err := Try(logger, "volumes", func() error {
		return Try(logger, "claims", func() error { // it is reported once, by the innermost part
			return Catch(func() error { broken["a"]++; return nil })
		})
	})
	var e *Error
	if !errors.As(err, &e) || !bytes.Contains(e.Stack, []byte("TestTry")) {
		t.Fatalf("a panic: %#v", err)
	}
	const want = "internal error, the stack is in the agent's log: assignment to entry in nil map"
	if err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "TestTry") ||
		!strings.Contains(text, "part=claims") {
		t.Errorf("logged %s", text)
	}
	for part, want := range map[string]float64{"claims": 1, "volumes": 0} {
		var m dto.Metric
		if err := total.WithLabelValues(part).Write(&m); err != nil || m.Counter.GetValue() != want {
			t.Errorf("panics in %s: %v (%v), want %v", part, m.Counter, err, want)
		}
	}
}
