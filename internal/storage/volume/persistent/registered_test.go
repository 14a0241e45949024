package persistent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lacking is a plugin whose driver may be missing.
type lacking struct {
	Plugin
	there    atomic.Bool
	attempts atomic.Int32
}

func (l *lacking) Unstage(context.Context, Device) error {
	l.attempts.Add(1)
	if !l.there.Load() {
		return errors.New("no driver")
	}
	return nil
}

// Unstaging that failed without the driver is retried when it registers.
func TestDriverRegisteredRetriesUnstage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, freed := &lacking{}, make(chan struct{}, 1)
		v := New(Config{Log: slog.New(slog.DiscardHandler), OnInUse: func() { freed <- struct{}{} }})
		v.scan = func() {}
		d := &device{plugin: p, turn: make(chan struct{}, 1), dev: Device{Traits: Traits{ID: "disk"}}, staging: staged}
		v.devices["disk"] = d
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- v.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		before := p.attempts.Load()
		p.there.Store(true)
		v.DriverRegistered()
		synctest.Wait()
		select {
		case <-freed:
		default:
			t.Errorf("it is still staged, after %d attempts and %d more", before, p.attempts.Load()-before)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
