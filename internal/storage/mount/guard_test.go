package mount

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuardPassesTheResultOn(t *testing.T) {
	g := NewGuard()
	want := errors.New("sorry")
	if err := g.Do(context.Background(), "/a", "look at", func() error { return want }); err != want {
		t.Errorf("err = %v, want %v", err, want)
	}
	if n := len(g.Running()); n != 0 {
		t.Errorf("%d calls run after the end", n)
	}
}

func TestGuardLeavesAHangingCallBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard()
		hang := make(chan struct{})
		ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
		defer stop()
		err := g.Do(ctx, "/nfs", "mount", func() error { <-hang; return nil })
		if err == nil || err.Error() != "mount /nfs: no answer from the file system for 3s" {
			t.Errorf("err = %v", err)
		}
		if r := g.Running(); len(r) != 1 || r[0].Key != "/nfs" || r[0].What != "mount" || !r[0].Lost {
			t.Errorf("running = %+v, want the lost call", r)
		}

		// Others go on.
		if err := g.Do(context.Background(), "/other", "mount", func() error { return nil }); err != nil {
			t.Errorf("another file system: %v", err)
		}
		// The same one is not called a second time.
		ctx2, stop2 := context.WithTimeout(context.Background(), time.Second)
		defer stop2()
		ran := false
		err = g.Do(ctx2, "/nfs", "unmount", func() error { ran = true; return nil })
		if ran || err == nil || !strings.Contains(err.Error(), "mount /nfs: no answer from the file system for 4s") {
			t.Errorf("ran = %v, err = %v, want the first call's name and age", ran, err)
		}
		// And when it comes back, all is well.
		close(hang)
		if err := g.Do(context.Background(), "/nfs", "unmount", func() error { return nil }); err != nil {
			t.Errorf("after the fault: %v", err)
		}
		if n := len(g.Running()); n != 0 {
			t.Errorf("%d calls run after the end", n)
		}
	})
}

func TestGuardHangingCallsDoNotUseUpTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard()
		hang := make(chan struct{})
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		lost := make(chan error, 3*slots)
		for i := range 3 * slots {
			go func() { lost <- g.Do(ctx, string(rune('a'+i)), "read", func() error { <-hang; return nil }) }()
		}
		synctest.Wait()
		if n := len(g.slots); n != slots {
			t.Errorf("%d calls run at once, want %d", n, slots)
		}
		began := time.Now()
		if err := g.Do(ctx, "/quick", "read", func() error { return nil }); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*late {
			t.Errorf("a good file system waited %v for bad ones", took)
		}
		stop()
		for range 3 * slots {
			if err := <-lost; err == nil {
				t.Error("a lost call reported success")
			}
		}
		close(hang)
		synctest.Wait()
		if n, l := len(g.Running()), g.lost; n != 0 || l != 0 {
			t.Errorf("%d running and %d lost after the end", n, l)
		}
	})
}

func TestGuardHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard()
		hang := make(chan struct{})
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		done := make(chan struct{}, maxLost)
		for i := range maxLost {
			go func() {
				if err := g.Do(ctx, string(rune(0x100+i)), "read", func() error { <-hang; return nil }); err == nil {
					t.Error("a hanging call reported success")
				}
				done <- struct{}{}
			}()
		}
		for range maxLost {
			<-done
		}
		err := g.Do(context.Background(), "/one-more", "read", func() error { return nil })
		if err == nil || !strings.Contains(err.Error(), "128 calls to file systems hang") {
			t.Errorf("err = %v, want a refusal", err)
		}
		close(hang)
		synctest.Wait()
		if err := g.Do(context.Background(), "/one-more", "read", func() error { return nil }); err != nil {
			t.Errorf("after the fault: %v", err)
		}
	})
}
