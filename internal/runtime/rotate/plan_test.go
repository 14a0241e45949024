package rotate

import (
	"slices"
	"testing"

	"keelson/test/kit/parity"
)

func TestTidy(t *testing.T) {
	parity.Proves(t, "RT-45")
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
		want     tidying
	}{
		{"a live log alone leaves nothing to do", []string{"0.log"}, 5, tidying{}},
		{"the newest rotated one is compressed when another is about to join it", []string{"0.log", c}, 5, tidying{Compress: []string{c}}},
		{"what is compressed stays", []string{"0.log", a + ".gz", b + ".gz", c}, 5, tidying{Compress: []string{c}}},
		{"the oldest goes when there is no room", []string{"0.log", d, b + ".gz", a + ".gz", c + ".gz"}, 5,
			tidying{Remove: []string{a + ".gz"}, Compress: []string{d}}},
		{"two files are the live one and the newest", []string{"0.log", a + ".gz", d}, 2, tidying{Remove: []string{a + ".gz", d}}},
		{"three files leave room for one older one", []string{"0.log", a + ".gz", d}, 3, tidying{Remove: []string{a + ".gz"}, Compress: []string{d}}},
		{"a plain one that should go is not compressed first", []string{"0.log", a, b, c, d}, 4, tidying{Remove: []string{a, b}, Compress: []string{c, d}}},
		{"half a compression is removed and done again", []string{"0.log", c, c + ".tmp"}, 5, tidying{Remove: []string{c + ".tmp"}, Compress: []string{c}}},
		{"a compression that lacked only the end is ended", []string{"0.log", c, c + ".gz"}, 5, tidying{Remove: []string{c}}},
		{"logs of other instances and strangers' files are left alone",
			[]string{"0.log", "10.log.20260102-010000", "1.log", "0.log.bak", "0.log.20260102-010000.xz", "0.log.20261302-010000", "0.log.20260102-01000"}, 2, tidying{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			slices.Reverse(tc.files) // a directory has no order
			got := tidy(tc.files, "0.log", tc.maxFiles)
			if !slices.Equal(got.Remove, tc.want.Remove) || !slices.Equal(got.Compress, tc.want.Compress) {
				t.Errorf("tidy = %+v, want %+v", got, tc.want)
			}
		})
	}
	if got := leftovers([]string{"0.log", a + ".tmp", b + ".gz", c, d, d + ".gz"}, "0.log"); !slices.Equal(got, []string{a + ".tmp", d}) {
		t.Errorf("leftovers = %v, want what an agent left that died", got)
	}
}
