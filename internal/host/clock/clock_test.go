package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("slept %v, want a minute", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if Sleep(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("slept %v with a context that ended after a second", time.Since(began))
		}
		if Sleep(ctx, 0) {
			t.Error("a context that has ended counts as one that has not")
		}
	})
}

func TestEarlierAndLater(t *testing.T) {
	var none time.Time
	one := time.Unix(1, 0)
	two := time.Unix(2, 0)
	for _, c := range []struct{ a, b, earlier, later time.Time }{
		{none, none, none, none},
		{none, one, one, one},
		{one, none, one, one},
		{one, two, one, two},
		{two, one, one, two},
		{two, two, two, two},
	} {
		if got := Earlier(c.a, c.b); got != c.earlier {
			t.Errorf("the earlier of %v and %v: %v, want %v", c.a, c.b, got, c.earlier)
		}
		if got := Later(c.a, c.b); got != c.later {
			t.Errorf("the later of %v and %v: %v, want %v", c.a, c.b, got, c.later)
		}
	}
}
