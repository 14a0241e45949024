package rotate

import (
	"slices"
	"testing"
	"time"

	"keelson/test/kit/parity"
)

func TestPlanCleanup(t *testing.T) {
	parity.ProvesPart(t, 3, "RT-45")
	const (
		a = "0.log.20260102-010000"
		b = "0.log.20260102-020000"
		c = "0.log.20260102-030000"
		d = "0.log.20260102-040000"
	)
	for _, tc := range []struct {
		name     string
		files    []string
		maxFiles int
		want     cleanup
	}{
		{"a live log without rotated files", []string{"0.log"}, 5, cleanup{}},
		{
			"the newest rotated one is compressed when another is about to join it",
			[]string{"0.log", c},
			5,
			cleanup{Compress: []string{c}},
		},
		{"compressed files are kept", []string{"0.log", a + ".gz", b + ".gz", c}, 5, cleanup{Compress: []string{c}}},
		{"the oldest is removed above maxFiles", []string{"0.log", d, b + ".gz", a + ".gz", c + ".gz"}, 5,
			cleanup{Remove: []string{a + ".gz"}, Compress: []string{d}}},
		{
			"two files are the live one and the newest",
			[]string{"0.log", a + ".gz", d},
			2,
			cleanup{Remove: []string{a + ".gz", d}},
		},
		{
			"three files leave room for one older one",
			[]string{"0.log", a + ".gz", d},
			3,
			cleanup{Remove: []string{a + ".gz"}, Compress: []string{d}},
		},
		{
			"a plain file to be removed is not compressed first",
			[]string{"0.log", a, b, c, d},
			4,
			cleanup{Remove: []string{a, b}, Compress: []string{c, d}},
		},
		{
			"half a compression is removed and done again",
			[]string{"0.log", c, c + ".tmp"},
			5,
			cleanup{Remove: []string{c + ".tmp"}, Compress: []string{c}},
		},
		{"a compression that lacked only the end is ended", []string{"0.log", c, c + ".gz"}, 5, cleanup{Remove: []string{c}}},
		{"logs of other instances and foreign files are ignored",
			[]string{"0.log", "10.log.20260102-010000", "1.log", "0.log.bak", "0.log.20260102-010000.xz",
				"0.log.20261302-010000", "0.log.20260102-01000"}, 2, cleanup{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			slices.Reverse(tc.files) // directories are not sorted
			got := planCleanup(tc.files, "0.log", tc.maxFiles)
			if !slices.Equal(got.Remove, tc.want.Remove) || !slices.Equal(got.Compress, tc.want.Compress) {
				t.Errorf("planCleanup = %+v, want %+v", got, tc.want)
			}
		})
	}
	if got := leftovers([]string{"0.log", a + ".tmp", b + ".gz", c, d, d + ".gz"},
		"0.log"); !slices.Equal(got, []string{a + ".tmp", d}) {
		t.Errorf("leftovers = %v, want what an agent left that died", got)
	}
}

func TestNextName(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		files []string
		want  string
	}{
		{"the time", []string{"0.log", "0.log.20260102-030404", "0.log.20260101-235959.gz"}, "0.log.20260102-030405"},
		{"the next second if the name exists", []string{"0.log", "0.log.20260102-030405"}, "0.log.20260102-030406"},
		{"the name exists with .gz", []string{"0.log", "0.log.20260102-030405.gz"}, "0.log.20260102-030406"},
		{
			"after those of a clock that was ahead",
			[]string{"0.log.20351231-235959", "0.log.20351231-000000.gz", "0.log"},
			"0.log.20360101-000000",
		},
		{
			"other names are ignored",
			[]string{"0.log", "1.log.20351231-235959", "0.log.mine", "10.log.20351231-235959"},
			"0.log.20260102-030405",
		},
		{
			"the time if the last representable one exists",
			[]string{"0.log", "0.log.99991231-235959"},
			"0.log.20260102-030405",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := nextName(tc.files, "0.log", now); got != tc.want {
				t.Errorf("nextName = %s, want %s", got, tc.want)
			}
		})
	}
}
