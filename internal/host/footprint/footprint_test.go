package footprint

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestLullsFollowBusyPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil)
		begin := time.Now()
		var at []time.Duration
		var busy []time.Duration
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- l.lulls(ctx, func() { busy = append(busy, time.Since(begin)) },
				func() error { at = append(at, time.Since(begin)); return nil })
		}()
		until := func(d time.Duration) { time.Sleep(d - time.Since(begin)) }
		until(time.Minute) // the first busy period ends after ten seconds
		for range 25 {     // the second one lasts from 1m0s to 1m24s
			l.Stir()
			time.Sleep(time.Second)
		}
		until(3 * time.Minute)
		l.Stir() // a single change
		until(20 * time.Minute)
		for range 1500 { // a busy period of 25 minutes
			l.Stir()
			time.Sleep(time.Second)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// whether a busy period is over is checked every ten seconds
		want := []time.Duration{10 * time.Second, 100 * time.Second, 190 * time.Second,
			13*time.Minute + 10*time.Second} // ten minutes without a change
		if len(at) != 7 || !slices.Equal(at[:4], want) {
			t.Fatalf("lulls at %v, want first %v and three more", at, want)
		}
		if want := []time.Duration{0, time.Minute, 3 * time.Minute, 20 * time.Minute}; len(busy) != 7 ||
			!slices.Equal(busy[:4], want) {
			t.Fatalf("busy from %v, want first %v and three more", busy, want)
		}
		for i := 4; i < len(busy); i++ { // the last busy period begins again after each call of end
			if pause := busy[i] - at[i]; pause < 0 || pause > time.Second {
				t.Errorf("busy again after %v", pause)
			}
		}
		for i := 4; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < tidyPeriod || gap > tidyPeriod+2*calm {
				t.Errorf("%v without one while it is busy", gap)
			}
		}
	})
}

func TestLullsReturnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("no such advice")
		if err := New(nil).lulls(t.Context(), func() {}, func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("err = %v", err)
		}
	})
}
