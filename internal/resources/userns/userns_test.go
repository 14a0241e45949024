package userns

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/parity"
	"keelson/test/kit/renames"
)

func allocator(t *testing.T, dir string, pods int) *Allocator {
	t.Helper()
	a, err := New(Config{
		PodsDir: dir,
		IDs:     Range{65536, uint64(pods) * 65536},
		PerPod:  65536,
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func makePodDir(t *testing.T, dir string, uid types.UID) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, string(uid)), 0o750); err != nil {
		t.Fatal(err)
	}
}

func TestRangesAfterRestart(t *testing.T) {
	dir := t.TempDir()
	a := allocator(t, dir, 3)
	seen := map[uint32]types.UID{}
	want := map[types.UID]Range{}
	for i := range 3 {
		uid := types.UID(fmt.Sprint("u", i))
		makePodDir(t, dir, uid)
		r, err := a.Allocate(uid)
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[r.First]; twice || r.First < 65536 || r.Count != 65536 {
			t.Errorf("%s gets %+v, which %q has", uid, r, other)
		}
		seen[r.First], want[uid] = uid, r
	}
	makePodDir(t, dir, "late")
	if _, err := a.Allocate("late"); err == nil || !strings.Contains(err.Error(), "all 3 ranges") {
		t.Errorf("a pod beyond the last range: %v", err)
	}
	b := allocator(t, dir, 3)
	for uid, r := range want {
		if got, err := b.Allocate(uid); err != nil || got != r {
			t.Errorf("after a restart %s has %+v, %v, want %+v", uid, got, err, r)
		}
	}
	if err := b.Release("u1"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Allocate("late"); err != nil || got != want["u1"] {
		t.Errorf("late gets %+v, %v, want the range that is free again", got, err)
	}
}

// The directory of a terminated pod remains as long as its API object. Its range can be allocated to another pod
// meanwhile. That pod keeps it after a restart of the agent.
func TestReleasedRangeAfterRestart(t *testing.T) {
	dir := t.TempDir()
	a := allocator(t, dir, 1)
	var had Range
	for _, uid := range []types.UID{"ended", "runs"} {
		makePodDir(t, dir, uid)
		r, err := a.Allocate(uid)
		if err != nil {
			t.Fatal(err)
		}
		if uid == "ended" {
			if err := a.Release(uid); err != nil {
				t.Fatal(err)
			}
			had = r
		} else if r != had {
			t.Errorf("%s has %+v, want %+v", uid, r, had)
		}
	}
	b := allocator(t, dir, 1)
	if err := b.Release("ended"); err != nil { // the terminated pod is released again
		t.Fatal(err)
	}
	makePodDir(t, dir, "new")
	if r, err := b.Allocate("new"); err == nil {
		t.Errorf("a new pod is given %+v, which another one runs with", r)
	}
	if r, err := b.Allocate("runs"); err != nil || r != had {
		t.Errorf("after a restart the pod has %+v, %v, want %+v", r, err, had)
	}
	// A later agent would restore a record that could not be removed. So the range is kept.
	record := filepath.Join(dir, "runs", "userns")
	if err := errors.Join(os.Remove(record), os.MkdirAll(filepath.Join(record, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := b.Release("runs"); err == nil {
		t.Error("a range was given back whose record is still there")
	}
	if r, err := b.Allocate("new"); err == nil {
		t.Errorf("a new pod is given %+v", r)
	}
}

// A released range is reused as late as possible, also after all ranges have been used once.
func TestRangesAreReusedLate(t *testing.T) {
	dir := t.TempDir()
	a := allocator(t, dir, 3)
	var given []uint32
	for i := range 7 {
		uid := types.UID(fmt.Sprint("u", i))
		makePodDir(t, dir, uid)
		r, err := a.Allocate(uid)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, r.First/65536)
		if err := a.Release(uid); err != nil {
			t.Fatal(err)
		}
	}
	if want := []uint32{1, 2, 3, 1, 2, 3, 1}; !slices.Equal(given, want) {
		t.Errorf("given %v, want %v", given, want)
	}
}

func TestRecordMatchesUpstream(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-116")
	dir := t.TempDir()
	makePodDir(t, dir, "u")
	if _, err := allocator(t, dir, 1).Allocate("u"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "u", "userns"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,` +
		`"containerId":0,"length":65536}]}`
	if string(b) != want {
		t.Errorf("record = %s\nwant     %s", b, want)
	}
}

func TestBadRecord(t *testing.T) {
	dir := t.TempDir()
	for uid, text := range map[string]string{
		"bad": "{",
		"foreign": `{"uidMappings":[{"hostId":70000,"containerId":0,"length":65536}],"gidMappings":[{"hostId":70000,` +
			`"containerId":0,"length":65536}]}`,
	} {
		makePodDir(t, dir, types.UID(uid))
		if err := os.WriteFile(filepath.Join(dir, uid, "userns"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := allocator(t, dir, 2)
	if len(a.pods) != 0 {
		t.Errorf("took up %v", a.pods)
	}
}

func TestFileInPodsDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var reported []error
	_, err := New(Config{
		PodsDir:   dir,
		IDs:       Range{65536, 65536},
		PerPod:    65536,
		Log:       slog.New(slog.DiscardHandler),
		OnCorrupt: func(err error) { reported = append(reported, err) },
		Recover: func(uid types.UID) (Range, bool) {
			t.Errorf("asked for %s", uid)
			return Range{}, false
		},
	})
	if err != nil || len(reported) > 0 {
		t.Errorf("%v, reported %v", err, reported)
	}
}

func TestAllocateNeedsRecord(t *testing.T) {
	a := allocator(t, t.TempDir(), 2)
	if _, err := a.Allocate("gone"); err == nil {
		t.Error("a range that could not be recorded was given")
	}
	if len(a.used) != 0 {
		t.Errorf("used = %v", a.used)
	}
}

// The IDs of the node are those that the system sets aside for the user kubelet. They must be enough for the maximum
// number of pods. If the system sets none aside, the IDs from 65536 on are used.
func TestNodeIDs(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-116")
	const none = "exit 1"
	for _, tc := range []struct {
		name, users, groups string
		want                Range
		err                 string
	}{
		{"a range", "echo '0: kubelet 131072 7208960'", "echo '0: kubelet 131072 7208960'", Range{131072, 7208960}, ""},
		{"unknown user", none, none, Range{65536, 7208960}, ""},
		{"too few for 110 pods", "echo '0: kubelet 131072 7143424'", "echo '0: kubelet 131072 7143424'", Range{},
			"7143424 IDs do not serve 110 pods of 65536"},
		{"other groups", "echo '0: kubelet 131072 7208960'", "echo '0: kubelet 65536 7208960'", Range{}, "must be the same"},
		{"two ranges", "echo '0: kubelet 131072 7208960'; echo '1: kubelet 9999999 65536'",
			"echo '0: kubelet 131072 7208960'; echo '1: kubelet 9999999 65536'",
			Range{}, "read subordinate IDs of user kubelet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			tool := "#!/bin/sh\nif [ \"$1\" = -g ]; then shift; [ \"$1\" = kubelet ] || exit 9; " + tc.groups + "\n" +
				"else [ \"$1\" = kubelet ] || exit 9; " + tc.users + "\nfi\n"
			if err := os.WriteFile(filepath.Join(dir, "getsubids"), []byte(tool), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			got, err := NodeIDs(t.Context(), 65536, 110)
			if got != tc.want || (err == nil) != (tc.err == "") ||
				err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%+v, %v; want %+v, %q", got, err, tc.want, tc.err)
			}
		})
	}
	t.Run("missing tool", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if got, err := NodeIDs(t.Context(), 131072, 10); err != nil || got != (Range{65536, 1310720}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestSubids(t *testing.T) {
	if r, err := parseSubids("0: kubelet 65536 7208960"); err != nil || r != (Range{65536, 7208960}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{
		"0: kubelet 1",
		"0: other 65536 65536",
		"0: kubelet 65536 65536\n1: kubelet 999 1",
		"0: kubelet x 1",
		"0: kubelet 99999999999 1",
	} {
		if r, err := parseSubids(bad); err == nil {
			t.Errorf("%q gives %+v", bad, r)
		}
	}
}

func TestBadConfiguration(t *testing.T) {
	for want, cfg := range map[string]Config{
		"1000 IDs per pod": {PerPod: 1000, IDs: Range{65536, 65536}},
		"IDs from 0":       {PerPod: 65536, IDs: Range{0, 65536}},
		"beyond the last":  {PerPod: 65536, IDs: Range{65536, 1 << 32}},
	} {
		cfg.PodsDir, cfg.Log = t.TempDir(), slog.New(slog.DiscardHandler)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// Records are renamed into place, so that a later agent never reads an incomplete one.
func TestRangesAreRenamedIntoPlace(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-57")
	dir := t.TempDir()
	w := renames.Watch(t, filepath.Join(dir, "u1"))
	if _, err := allocator(t, dir, 1).Allocate("u1"); err != nil {
		t.Fatal(err)
	}
	if there := w.Check(t); len(there) != 1 {
		t.Errorf("%q are there, want one file", there)
	}
}
