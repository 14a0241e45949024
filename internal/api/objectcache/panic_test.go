package objectcache

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// buffer is a log that is read while it is written.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// The agent panics at a watch event of one object. That object is watched again after a back-off,
// and its pods are notified then; other objects are watched meanwhile.
func TestPanicDuringWatch(t *testing.T) {
	for _, how := range []Detection{Watch, Cache} {
		t.Run(string(how), func(t *testing.T) {
			f := newFakeAPI(t)
			changes, log := make(chan string, 100), &buffer{}
			var left atomic.Int32
			left.Store(2)
			s := New(Config{
				Client: f.client(),
				Detect: how,
				Period: func() time.Duration { return 20 * time.Millisecond },
				Log:    slog.New(slog.NewTextHandler(log, nil)),
				OnChange: func(_ []types.UID, _ Kind, _, name string) {
					if name == "sick" && left.Add(-1) >= 0 {
						panic("at an object")
					}
					changes <- name
				},
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			defer func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			for _, name := range []string{"sick", "well"} {
				f.put(cm("a", name, "one"))
				s.Register(podWith(types.UID("p-"+name), "a", name))
				if _, err := s.ConfigMap(patient(t), "a", name); err != nil {
					t.Fatal(err)
				}
			}
			f.put(cm("a", "sick", "two"))
			f.put(cm("a", "well", "two"))
			reported := map[string]bool{}
			for end := time.After(time.Minute); len(reported) < 2; {
				select {
				case name := <-changes:
					reported[name] = true
				case <-end:
					t.Fatalf("notified of %v alone", reported)
				}
			}
			if got, err := s.ConfigMap(patient(t), "a", "sick"); err != nil || got.Data["k"] != "two" {
				t.Errorf("after the panics: %v, %v", got, err)
			}
			if n := strings.Count(log.text(), "part=objects"); n != 2 {
				t.Errorf("%d panics in the log, want 2:\n%s", n, log.text())
			}
		})
	}
}
