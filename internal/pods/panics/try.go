package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Error is a panic that was recovered from.
type Error struct {
	Value any // that panic was called with
	Stack []byte

	reported sync.Once
}

func (e *Error) Error() string {
	return fmt.Sprintf("internal error, the stack is in the agent's log: %v", e.Value)
}

var total = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "keelson_panics_total",
	Help: "Cumulative number of recovered panics in the work for one pod, by part of the agent",
}, []string{"part"})

// Metrics are the package's metrics: one set for the process.
func Metrics() prometheus.Collector { return total }

// Try runs f, and returns a panic in it as an [*Error], logged and counted for a part of
// the agent. Locks that f holds at that moment stay locked unless it releases them with
// defer.
func Try(log *slog.Logger, part string, f func() error) error {
	err := Catch(f)
	var e *Error
	if errors.As(err, &e) {
		e.reported.Do(func() {
			total.WithLabelValues(part).Inc()
			log.Error("panic", "part", part, "panic", e.Value, "stack", string(e.Stack))
		})
	}
	return err
}

// Catch is Try for a goroutine whose error a Try of another goroutine returns, which logs and counts the panic.
func Catch(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Error{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}
