package await

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// failure records how a test failed.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Helper() {}

func (f *failure) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, looks := time.Now(), 0
		Within(t, time.Minute, time.Second, "five looks", func() (string, bool) {
			looks++
			return "", looks == 5
		})
		if took := time.Since(begin); took != 4*time.Second {
			t.Errorf("took %v", took)
		}
		for saw, want := range map[string]string{
			"":        "wait for rain: not within 1m0s",
			"the sun": "wait for rain: not within 1m0s; last seen: the sun",
		} {
			f, done := &failure{TB: t}, make(chan struct{})
			go func() {
				defer close(done)
				Until(f, "rain", func() (string, bool) { return saw, false })
			}()
			<-done
			if f.text != want {
				t.Errorf("%q, want %q", f.text, want)
			}
		}
	})
}
