package timeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

var start = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

func TestStepsOfAStart(t *testing.T) {
	var l Line
	s := l.Begin(start, View{Verb: "start", Target: "main", Why: "not created"})
	ctx := With(t.Context(), s)
	From(ctx).Call("CreateContainer", start.Add(time.Millisecond), 20*time.Millisecond, nil)
	From(ctx).Call("StartContainer", start.Add(21*time.Millisecond), 5*time.Millisecond, errors.New("no"))
	steps, _ := l.Steps()
	if len(steps) != 1 || !steps[0].Ended.IsZero() || len(steps[0].Calls) != 2 || steps[0].Calls[1].Error != "no" {
		t.Fatalf("%+v", steps)
	}
	s.End(start.Add(time.Second), errors.New("cannot"))
	s.End(start.Add(time.Hour), nil) // it has ended once
	steps, _ = l.Steps()
	if !steps[0].Ended.Equal(start.Add(time.Second)) || steps[0].Error != "cannot" {
		t.Errorf("%+v", steps[0])
	}
	// Work that is for no pod records nothing.
	From(context.Background()).Call("Version", start, 0, nil)
	From(context.Background()).End(start, nil)
}

// A pod that crashes for ever keeps its start and its newest steps, and no more.
func TestLineIsBounded(t *testing.T) {
	var l Line
	for i := range 1000 {
		s := l.Begin(start.Add(time.Duration(i)*time.Second), View{Target: fmt.Sprint(i)})
		for range 50 {
			s.Call("Call", start, 0, nil)
		}
	}
	steps, lost := l.Steps()
	if len(steps) != firstKept+lastKept || lost != 1000-len(steps) || steps[0].Target != "0" ||
		steps[firstKept-1].Target != fmt.Sprint(firstKept-1) ||
		steps[len(steps)-1].Target != "999" || len(steps[0].Calls) != callsKept {
		t.Errorf("%d steps kept, %d lost, the last is %s", len(steps), lost, steps[len(steps)-1].Target)
	}
}
