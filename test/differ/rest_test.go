package differ

import (
	"testing"
	"time"
)

func TestDelaysOfStops(t *testing.T) {
	for _, tc := range []struct {
		what   string
		faults []Fault
		want   time.Duration
	}{
		{"no fault", nil, 0},
		{"a stop", []Fault{{Method: "StopContainer", DelayMS: 10107}}, 10107 * time.Millisecond},
		{"a stop that fails", []Fault{{Method: "StopContainer", Message: "no"}}, 0},
		{"a start", []Fault{{Method: "StartContainer", DelayMS: 17584}}, 0},
	} {
		if got := delayedStop(&Life{Faults: tc.faults}); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, got, tc.want)
		}
	}
}
