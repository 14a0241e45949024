package clock

import (
	"slices"
	"testing"
	"time"
)

func TestBackoffDoublesUpToMaximum(t *testing.T) {
	b := Backoff(500*time.Millisecond, 5*time.Second)
	var got []time.Duration
	for copied := b; len(got) < 6; {
		got = append(got, copied.Step())
	}
	want := []time.Duration{500e6, 1e9, 2e9, 4e9, 5e9, 5e9}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
	if first := b.Step(); first != 500*time.Millisecond {
		t.Errorf("another copy begins with %v", first)
	}
	for j := Jittered(b, 0.5); j.Duration < j.Cap; {
		least := j.Duration
		if d := j.Step(); d < least || d > least+least/2 {
			t.Errorf("pause %v, want %v to %v", d, least, least+least/2)
		}
	}
}
