package mount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuardReturnsResult(t *testing.T) {
	g := NewGuard()
	want := errors.New("sorry")
	if err := g.Do(context.Background(), "/a", "look at", func() error { return want }); err != want {
		t.Errorf("err = %v, want %v", err, want)
	}
	if n := len(g.Running()); n != 0 {
		t.Errorf("%d calls run after the end", n)
	}
}

func TestGuardAbandonsHangingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard()
		hang := make(chan struct{})
		ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
		defer stop()
		err := g.Do(ctx, "/nfs", "mount", func() error { <-hang; return nil })
		if err == nil || err.Error() != "mount /nfs: file system did not respond for 3s" {
			t.Errorf("err = %v", err)
		}
		if r := g.Running(); len(r) != 1 || r[0].Key != "/nfs" || r[0].What != "mount" || !r[0].Abandoned {
			t.Errorf("running = %+v, want the lost call", r)
		}

		// Others continue.
		if err := g.Do(context.Background(), "/other", "mount", func() error { return nil }); err != nil {
			t.Errorf("another file system: %v", err)
		}
		// A call with the same key is not made.
		ctx2, stop2 := context.WithTimeout(context.Background(), time.Second)
		defer stop2()
		ran := false
		err = g.Do(ctx2, "/nfs", "unmount", func() error { ran = true; return nil })
		if ran || err == nil || !strings.Contains(err.Error(), "mount /nfs: file system did not respond for 4s") {
			t.Errorf("ran = %v, err = %v, want the first call's name and age", ran, err)
		}
		// When it returns, calls work again.
		close(hang)
		if err := g.Do(context.Background(), "/nfs", "unmount", func() error { return nil }); err != nil {
			t.Errorf("after the fault: %v", err)
		}
		if n := len(g.Running()); n != 0 {
			t.Errorf("%d calls run after the end", n)
		}
	})
}

func TestGuardHangingCallsReleaseSlots(t *testing.T) {
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
		if took := time.Since(began); took > 3*hangAfter {
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
		if n, l := len(g.Running()), g.abandoned; n != 0 || l != 0 {
			t.Errorf("%d running and %d lost after the end", n, l)
		}
	})
}

func TestGuardLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard()
		hang := make(chan struct{})
		ctx, stop := context.WithTimeout(context.Background(), time.Hour)
		defer stop()
		done := make(chan struct{}, maxAbandoned)
		for i := range maxAbandoned {
			go func() {
				if err := g.Do(ctx, string(rune(0x100+i)), "read", func() error { <-hang; return nil }); err == nil {
					t.Error("a hanging call reported success")
				}
				done <- struct{}{}
			}()
		}
		for range maxAbandoned {
			<-done
		}
		err := g.Do(context.Background(), "/one-more", "read", func() error { return nil })
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d calls to file systems hang", maxAbandoned)) {
			t.Errorf("err = %v, want a refusal", err)
		}
		close(hang)
		synctest.Wait()
		if err := g.Do(context.Background(), "/one-more", "read", func() error { return nil }); err != nil {
			t.Errorf("after the fault: %v", err)
		}
	})
}

// One pod has more hanging file systems than its limit. Others are not affected, and a call that
// ends the hanging is not limited.
func TestGuardLimitPerOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard()
		hang := make(chan struct{})
		ctx, stop := context.WithCancel(Owned(context.Background(), "pod a"))
		defer stop()
		const many = 10 * maxPerOwner
		ended := make(chan error, many)
		for i := range many {
			go func() { ended <- g.Do(ctx, fmt.Sprint(i), "read", func() error { <-hang; return nil }) }()
		}
		time.Sleep(time.Minute)
		if n := len(g.Running()); n != maxPerOwner {
			t.Errorf("%d calls of one owner hang, want %d", n, maxPerOwner)
		}
		short, end := context.WithTimeout(ctx, time.Second)
		defer end()
		err := g.Do(short, "one more", "read", func() error { t.Error("another call was made"); return nil })
		if err == nil ||
			!strings.Contains(err.Error(),
				fmt.Sprintf("read one more: %d calls to file systems of pod a have not returned", maxPerOwner)) {
			t.Errorf("its next call: %v", err)
		}
		if err := g.Do(Owned(context.Background(), "pod b"), "other", "read", func() error { return nil }); err != nil {
			t.Errorf("another owner: %v", err)
		}
		if err := g.Rescue(ctx, "rescue", "unmount", func() error { close(hang); return nil }); err != nil {
			t.Errorf("what ends the hanging: %v", err)
		}
		for range many { // waiting calls are made now
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := len(g.Running()); n != 0 || len(g.owned) != 0 || g.abandoned != 0 {
			t.Errorf("%d run, owned %v, %d lost after the end", n, g.owned, g.abandoned)
		}
	})
}
