package app

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestLullsAreTheEndsOfBusyTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLulls()
		begin := time.Now()
		var at []time.Duration
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- l.run(ctx, func() error { at = append(at, time.Since(begin)); return nil })
		}()
		until := func(d time.Duration) { time.Sleep(d - time.Since(begin)) }
		until(time.Minute) // the start is a busy time
		for range 25 {     // and this one lasts from 1m0s to 1m24s
			l.stir()
			time.Sleep(time.Second)
		}
		until(3 * time.Minute)
		l.stir() // a single change
		until(20 * time.Minute)
		for range 1500 { // and one that does not end for 25 minutes
			l.stir()
			time.Sleep(time.Second)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []time.Duration{10 * time.Second, 100 * time.Second, 190 * time.Second, // a look each ten seconds finds that it is over
			13*time.Minute + 10*time.Second} // nothing for ten minutes
		if len(at) != 7 || !slices.Equal(at[:4], want) {
			t.Fatalf("lulls at %v, want first %v and three more", at, want)
		}
		for i := 4; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < tidyPeriod || gap > tidyPeriod+2*calm {
				t.Errorf("%v without one while it is busy", gap)
			}
		}
	})
}

func TestLullsEndWithAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("no such advice")
		if err := newLulls().run(t.Context(), func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("err = %v", err)
		}
	})
}
