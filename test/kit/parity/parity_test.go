package parity

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// trial is a testing.TB whose outcome the test decides. Its cleanups run at the end of
// run.
type trial struct {
	testing.TB
	name            string
	failed, skipped bool
	fatal           string
	cleanups        []func()
}

func (f *trial) Helper()          {}
func (f *trial) Name() string     { return f.name }
func (f *trial) Failed() bool     { return f.failed }
func (f *trial) Skipped() bool    { return f.skipped }
func (f *trial) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *trial) Error(args ...any) {
	f.failed = true
	f.fatal = fmt.Sprint(args...)
}
func (f *trial) Fatal(args ...any) {
	f.Error(args...)
	runtime.Goexit()
}
func (f *trial) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// run runs body as the testing package would and then the cleanups.
func (f *trial) run(body func(t testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(f)
	}()
	<-done
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
}

func provenIn(t *testing.T, dir string) string {
	t.Helper()
	records, err := Records(dir)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range records {
		if r.Skipped {
			rows = append(rows, "skipped", r.Test)
		}
		rows = append(rows, r.Row)
	}
	return strings.Join(rows, " ")
}

func TestProvesRecordsOnlyGoodEndings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	t.Setenv(Env, dir)

	good := &trial{name: "TestGood"}
	good.run(func(t testing.TB) { Proves(t, "LIFE-01", "RT-14") })
	if got := provenIn(t, dir); got != "LIFE-01 RT-14" {
		t.Fatalf("after a passed test the records are %q", got)
	}

	bad := &trial{name: "TestBad"}
	bad.run(func(t testing.TB) { Proves(t, "LIFE-02"); t.Error("broken") })
	skipped := &trial{name: "TestSkipped", skipped: true}
	skipped.run(func(t testing.TB) { Proves(t, "LIFE-03") })
	if got := provenIn(t, dir); got != "LIFE-01 skipped TestSkipped LIFE-03 RT-14" {
		t.Fatalf("after a failed and a skipped test the records are %q", got)
	}

	turned := &trial{name: "TestGood"}
	turned.run(func(t testing.TB) { Proves(t, "LIFE-01"); t.Error("broken") })
	if got := provenIn(t, dir); got != "skipped TestSkipped LIFE-03 RT-14" {
		t.Fatalf("a test that fails now keeps its old record: %q", got)
	}

	unknown := &trial{name: "TestUnknown"}
	unknown.run(func(t testing.TB) { Proves(t, "LIFE-9999") })
	if !strings.Contains(unknown.fatal, "LIFE-9999 is not in docs/parity") {
		t.Fatalf("an unknown row ends with %q", unknown.fatal)
	}
}

func TestOtherClaimsAreRecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	t.Setenv(Env, dir)
	f := &trial{name: "TestX"}
	f.run(func(t testing.TB) {
		ProvesPart(t, 3, "LIFE-01")
		Differs(t, "LIFE-02", "0005")
	})
	got, err := Records(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Commit == "" || got[i].Fingerprint == "" {
			t.Errorf("record %+v does not name the code that was tested", got[i])
		}
		got[i].Commit, got[i].Fingerprint = "", ""
	}
	want := []Record{
		{Row: "LIFE-01", Package: "keelson/test/kit/parity", Test: "TestX", Parts: 3},
		{Row: "LIFE-02", Package: "keelson/test/kit/parity", Test: "TestX", Decision: "0005"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the records are %+v, want %+v", got, want)
	}

	for name, c := range map[string]struct {
		claim func(t testing.TB)
		want  string
	}{
		"an unknown row": {func(t testing.TB) { ProvesPart(t, 2, "LIFE-9999") },
			"LIFE-9999 is not in docs/parity"},
		"a part that is alone": {func(t testing.TB) { ProvesPart(t, 1, "LIFE-01") },
			"LIFE-01 is proven by 1 tests together"},
		"an unknown decision": {func(t testing.TB) { Differs(t, "LIFE-02", "9999") },
			"decision 9999, by which the agent differs from parity row LIFE-02, is not in docs/decisions"},
		"a row of no decision": {func(t testing.TB) { Differs(t, "LIFE-9999", "0005") },
			"LIFE-9999 is not in docs/parity"},
	} {
		f := &trial{name: "TestX"}
		f.run(c.claim)
		if !strings.Contains(f.fatal, c.want) {
			t.Errorf("%s ends with %q, want %q", name, f.fatal, c.want)
		}
	}
}

func TestRecordsFromBefore(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.proven": "RT-01\tkeelson/a\tTestA\n", // of a cached test
		"b.proven": "RT-02\tkeelson/a\tTestB\t2\t\n",
		"c.proven": "RT-03\tkeelson/a\tTestC\t0\t0005\tfalse\t0123abcd\tfeed\n",
		"d.proven": "RT-03\tkeelson/a\tTestD\t2\t\ttrue\t0123abcd-changed\tfeed\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Records(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{Row: "RT-01", Package: "keelson/a", Test: "TestA"},
		{Row: "RT-02", Package: "keelson/a", Test: "TestB"}, // names no code, as the first
		{Row: "RT-03", Package: "keelson/a", Test: "TestC", Decision: "0005", Commit: "0123abcd", Fingerprint: "feed"},
		{
			Row:         "RT-03",
			Package:     "keelson/a",
			Test:        "TestD",
			Parts:       2,
			Skipped:     true,
			Commit:      "0123abcd-changed",
			Fingerprint: "feed",
		},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the records are %+v, want %+v", got, want)
	}
	for name, text := range map[string]string{
		"two fields":         "RT-01\tkeelson/a\n",
		"parts of no number": "RT-01\tkeelson/a\tTestA\tmany\t\tfalse\t0123abcd\tfeed\n",
		"skipped or not":     "RT-01\tkeelson/a\tTestA\t0\t\tmaybe\t0123abcd\tfeed\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "e.proven"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Records(dir); err == nil || !strings.Contains(err.Error(), "e.proven") {
			t.Errorf("%s: error %v, want one that names the record", name, err)
		}
	}
}

func TestProvesWithoutDirectory(t *testing.T) {
	t.Setenv(Env, "")
	f := &trial{name: "TestX"}
	f.run(func(t testing.TB) { Proves(t, "LIFE-01") })
	if f.failed || len(f.cleanups) != 0 {
		t.Fatalf("without a directory nothing is to be recorded: %+v", f)
	}
}

func TestPackageOf(t *testing.T) {
	for function, want := range map[string]string{
		"keelson/internal/pods/pod.TestA":            "keelson/internal/pods/pod",
		"keelson/internal/pods/pod.TestA.func1.2":    "keelson/internal/pods/pod",
		"keelson/internal/pods/pod_test.TestA.func1": "keelson/internal/pods/pod",
		"keelson/test/kit/parity.(*suite).run":       "keelson/test/kit/parity",
	} {
		if got := packageOf(function); got != want {
			t.Errorf("packageOf(%q) = %q, want %q", function, got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	src := "package a\nfunc TestOne(t *testing.T) { parity.Proves(t, \"RT-01\") }\n"
	src += "func TestPart(t *testing.T) { parity.ProvesPart(t, 2, \"RT-06\") }\n"
	src += "func TestOther(t *testing.T) { parity.Differs(t, \"RT-07\", \"0003\") }\n"
	if err := os.WriteFile(filepath.Join(root, "a", "a_test.go"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "a", "testdata"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "a", "testdata", "story.txt"),
		[]byte("# RT-05\nrows: RT-03 RT-04\npart: 3 RT-08\ndiffers: RT-09 0003\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const one, story = "m/a TestOne", "m/a TestOne/story"
	for _, c := range []struct {
		name string
		rec  Record
		want string
	}{
		{"the scenario names the row", Record{Row: "RT-04", Package: "m/a", Test: "TestOne/story"}, story},
		{
			"the scenario speaks of the row and does not claim it",
			Record{Row: "RT-05", Package: "m/a", Test: "TestOne/story"},
			"",
		},
		{"another scenario names the row", Record{Row: "RT-04", Package: "m/a", Test: "TestOne/other"}, ""},
		{"the scenario names the row and its test is gone", Record{Row: "RT-04", Package: "m/a", Test: "TestTwo/story"}, ""},
		{"the test names the row", Record{Row: "RT-01", Package: "m/a", Test: "TestOne/case"}, one},
		{"the test is gone", Record{Row: "RT-01", Package: "m/a", Test: "TestTwo"}, ""},
		{"the row is no longer named", Record{Row: "RT-02", Package: "m/a", Test: "TestOne"}, ""},
		{"the package is gone", Record{Row: "RT-01", Package: "m/b", Test: "TestOne"}, ""},
		{"the package is of another module", Record{Row: "RT-01", Package: "other/a", Test: "TestOne"}, ""},
		{"the test proves a part", Record{Row: "RT-06", Package: "m/a", Test: "TestPart/case", Parts: 2}, "m/a TestPart"},
		{"the part is of another number", Record{Row: "RT-06", Package: "m/a", Test: "TestPart", Parts: 3}, ""},
		{"the whole became a part", Record{Row: "RT-06", Package: "m/a", Test: "TestPart"}, ""},
		{
			"the test shows a difference",
			Record{Row: "RT-07", Package: "m/a", Test: "TestOther", Decision: "0003"},
			"m/a TestOther",
		},
		{
			"the difference has another decision",
			Record{Row: "RT-07", Package: "m/a", Test: "TestOther", Decision: "0004"},
			"",
		},
		{"the whole became a difference", Record{Row: "RT-07", Package: "m/a", Test: "TestOther"}, ""},
		{"the scenario proves a part", Record{Row: "RT-08", Package: "m/a", Test: "TestOne/story", Parts: 3}, story},
		{
			"the scenario's part is of another number",
			Record{Row: "RT-08", Package: "m/a", Test: "TestOne/story", Parts: 2},
			"",
		},
		{
			"the scenario shows a difference",
			Record{Row: "RT-09", Package: "m/a", Test: "TestOne/story", Decision: "0003"},
			story,
		},
		{
			"the scenario's difference has another decision",
			Record{Row: "RT-09", Package: "m/a", Test: "TestOne/story", Decision: "0004"},
			"",
		},
	} {
		got, err := c.rec.Place(root, "m")
		if err != nil || got != c.want {
			t.Errorf("%s: place = %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}
