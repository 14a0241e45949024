package need

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// outcome records how a test ended.
type outcome struct {
	testing.TB
	name            string
	skipped, failed string
}

func (o *outcome) Helper()      {}
func (o *outcome) Name() string { return o.name }

func (o *outcome) Skip(args ...any) {
	o.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func skip(name, reason string, detail ...any) *outcome {
	o := &outcome{name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Skip(o, reason, detail...)
	}()
	<-done
	return o
}

func TestSkip(t *testing.T) {
	expected := listed[0]
	t.Setenv(Env, "")
	if o := skip("TestX", "no disk", 1, "two"); o.skipped != "no disk: 1 two" || o.failed != "" {
		t.Errorf("outside of continuous integration: %+v", o)
	}
	t.Setenv(Env, "true")
	if o := skip("TestX", "no disk", "two"); o.skipped != "" || !strings.HasSuffix(o.failed, ": no disk: two") {
		t.Errorf("a skip that is not listed: %+v", o)
	}
	for _, name := range []string{expected.test, expected.test + "/case"} {
		if o := skip(name, expected.reason); o.skipped != expected.reason || o.failed != "" {
			t.Errorf("a listed skip of %s: %+v", name, o)
		}
	}
	if o := skip(expected.test, "another reason"); o.failed == "" {
		t.Errorf("a listed test with another reason: %+v", o)
	}
	if o := skip(expected.test+"Else", expected.reason); o.failed == "" {
		t.Errorf("a test whose name begins with that of a listed one: %+v", o)
	}
}

func TestListed(t *testing.T) {
	for _, l := range listed {
		if l.test == "" || l.reason == "" || l.why == "" {
			t.Errorf("incomplete entry %+v", l)
		}
	}
}
