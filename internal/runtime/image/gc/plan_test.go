package gc

import (
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/parity"
)

var t0 = time.Unix(1000000, 0)

func ids(rs []record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.id)
	}
	return out
}

func TestObserve(t *testing.T) {
	list := func(ids ...string) []*runtimeapi.Image {
		var out []*runtimeapi.Image
		for _, id := range ids {
			out = append(out, &runtimeapi.Image{
				Id:          id,
				RepoTags:    []string{id + ":tag"},
				RepoDigests: []string{id + "@sha256:1"},
				Size:        7,
			})
		}
		return out
	}
	recs := observe(nil, list("a", "b"), map[string]bool{"a": true}, true, t0)
	if r := recs[key{id: "a"}]; !r.detected.IsZero() || !r.used.Equal(t0) || !r.inUse || r.size != 7 {
		t.Errorf("an image in use from the start: %+v", r)
	}
	later := t0.Add(time.Hour)
	recs = observe(recs, list("a", "b", "c"), map[string]bool{"b:tag": true, "c@sha256:1": true}, false, later)
	if r := recs[key{id: "a"}]; r.inUse || !r.used.Equal(t0) {
		t.Errorf("an image that was in use: %+v", r)
	}
	if r := recs[key{id: "b"}]; !r.inUse || !r.used.Equal(later) {
		t.Errorf("an image in use by its tag: %+v", r)
	}
	if r := recs[key{id: "c"}]; !r.inUse || !r.detected.Equal(later) {
		t.Errorf("a new image in use by its digest: %+v", r)
	}
	if recs = observe(recs, list("a"), nil, false, later); len(recs) != 1 {
		t.Errorf("%d images are remembered of one", len(recs))
	}
	two := []*runtimeapi.Image{{Id: "a", Spec: &runtimeapi.ImageSpec{RuntimeHandler: "kata"}}, {Id: "a"}}
	if recs = observe(nil, two, nil, true, t0); len(recs) != 2 {
		t.Errorf("%d images of one id for two handlers", len(recs))
	}
}

func TestCandidates(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-34")
	parity.ProvesPart(t, 4, "RT-35")
	at := func(min int) time.Time { return t0.Add(time.Duration(min) * time.Minute) }
	recs := map[key]record{}
	for _, r := range []record{
		{key: key{id: "used-late"}, used: at(9), detected: at(0)},
		{key: key{id: "used-early"}, used: at(3), detected: at(2)},
		{key: key{id: "never-used-new"}, detected: at(5)},
		{key: key{id: "never-used-old"}, detected: at(1)},
		{key: key{id: "used-early-older"}, used: at(3), detected: at(1)},
		{key: key{id: "pinned"}, pinned: true},
		{key: key{id: "in-use"}, inUse: true, used: at(1)},
	} {
		recs[r.key] = r
	}
	want := []string{"never-used-old", "never-used-new", "used-early-older", "used-early", "used-late"}
	if got := ids(candidates(recs)); !slices.Equal(got, want) {
		t.Errorf("candidates = %v, want %v", got, want)
	}
}

func TestTooOld(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-36")
	now := t0.Add(100 * time.Hour)
	rs := []record{
		{key: key{id: "there-before"}},
		{key: key{id: "used-long-ago"}, used: now.Add(-11 * time.Hour)},
		{key: key{id: "used-lately"}, used: now.Add(-9 * time.Hour)},
		{key: key{id: "came-lately"}, detected: now.Add(-9 * time.Hour)},
		{key: key{id: "exactly"}, used: now.Add(-10 * time.Hour)},
	}
	for _, tc := range []struct {
		name   string
		maxAge time.Duration
		began  time.Time
		old    []string
	}{
		{"what was not used for long", 10 * time.Hour, t0, []string{"there-before", "used-long-ago"}},
		{"nothing while the agent is younger than that", 10 * time.Hour, now.Add(-10 * time.Hour), nil},
		{"nothing without such an age", 0, t0, nil},
	} {
		old, rest := tooOld(rs, tc.maxAge, tc.began, now)
		if !slices.Equal(ids(old), tc.old) || len(old)+len(rest) != len(rs) {
			t.Errorf("%s: old = %v, want %v; the rest is %v", tc.name, ids(old), tc.old, ids(rest))
		}
	}
}

func TestExcess(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-34")
	for _, tc := range []struct {
		name                string
		capacity, available uint64
		bytes               uint64
		percent             int
		over                bool
	}{
		{"below the high threshold", 1000, 160, 0, 84, false},
		{"at the high threshold", 1000, 150, 50, 85, true},
		{"parts of a percent count as used", 1000, 159, 41, 85, true},
		{"full", 1000, 0, 200, 100, true},
		{"more available than the capacity", 1000, 2000, 0, 0, false},
		{"a large disk", 100 << 40, 10 << 40, 10 << 40, 90, true},
	} {
		bytes, percent, over := excess(tc.capacity, tc.available, 85, 80)
		if bytes != tc.bytes || percent != tc.percent || over != tc.over {
			t.Errorf("%s: excess = %d, %d%%, %v; want %d, %d%%, %v", tc.name, bytes, percent, over, tc.bytes,
				tc.percent,
				tc.over)
		}
	}
	if bytes, _, over := excess(1000, 10, 0, 0); !over || bytes != 990 {
		t.Errorf("with thresholds of zero: %d, %v; want all of it", bytes, over)
	}
}

func TestOldEnough(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-38")
	for age, want := range map[time.Duration]bool{0: false, time.Minute: false, 2 * time.Minute: true} {
		if got := oldEnough(record{detected: t0}, 2*time.Minute, t0.Add(age)); got != want {
			t.Errorf("oldEnough after %v = %v", age, got)
		}
	}
	if !oldEnough(record{}, 2*time.Minute, t0) {
		t.Error("an image that was there before is taken for a new one")
	}
}

func TestSizeText(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0:          "0 B",
		1023:       "1023 B",
		1024:       "1.0 KiB",
		1536 << 10: "1.5 MiB",
		40 << 30:   "40.0 GiB",
		5 << 50:    "5120.0 TiB",
	} {
		if got := sizeText(bytes); got != want {
			t.Errorf("%d bytes: %q, want %q", bytes, got, want)
		}
	}
}
