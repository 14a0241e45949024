package parity

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	inventory "keelson/docs/parity"
)

// trial is a testing.TB whose outcome the test decides; its cleanups run when
// the test says so.
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
	if got := provenIn(t, dir); got != "LIFE-01 RT-14" {
		t.Fatalf("a failed and a skipped test left records: %q", got)
	}

	turned := &trial{name: "TestGood"}
	turned.run(func(t testing.TB) { Proves(t, "LIFE-01"); t.Error("broken") })
	if got := provenIn(t, dir); got != "RT-14" {
		t.Fatalf("a test that fails now keeps its old record: %q", got)
	}

	unknown := &trial{name: "TestUnknown"}
	unknown.run(func(t testing.TB) { Proves(t, "LIFE-9999") })
	if !strings.Contains(unknown.fatal, "LIFE-9999 is not in docs/parity") {
		t.Fatalf("an unknown row ends with %q", unknown.fatal)
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

func TestStale(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	src := "package a\nfunc TestOne(t *testing.T) { parity.Proves(t, \"RT-01\") }\n"
	if err := os.WriteFile(filepath.Join(root, "a", "a_test.go"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "a", "testdata"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "a", "testdata", "story.txt"), []byte("# RT-05\nrows: RT-03 RT-04\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		rec  Record
		want bool
	}{
		{"the scenario names the row", Record{"RT-04", "m/a", "TestOne/story"}, false},
		{"the scenario speaks of the row and does not claim it", Record{"RT-05", "m/a", "TestOne/story"}, true},
		{"another scenario names the row", Record{"RT-04", "m/a", "TestOne/other"}, true},
		{"the scenario names the row and its test is gone", Record{"RT-04", "m/a", "TestTwo/story"}, true},
		{"the test names the row", Record{"RT-01", "m/a", "TestOne/case"}, false},
		{"the test is gone", Record{"RT-01", "m/a", "TestTwo"}, true},
		{"the row is no longer named", Record{"RT-02", "m/a", "TestOne"}, true},
		{"the package is gone", Record{"RT-01", "m/b", "TestOne"}, true},
		{"the package is of another module", Record{"RT-01", "other/a", "TestOne"}, true},
	} {
		got, err := c.rec.Stale(root, "m")
		if err != nil || got != c.want {
			t.Errorf("%s: stale = %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	rows := []inventory.Row{
		{ID: "SRC-01", Subsystem: "SRC", Priority: "P0"},
		{ID: "LIFE-01", Subsystem: "LIFE", Priority: "P0"},
		{ID: "LIFE-02", Subsystem: "LIFE", Priority: "P0"},
		{ID: "LIFE-03", Subsystem: "LIFE", Priority: "P3"},
	}
	got := Table(rows, map[string]bool{"LIFE-01": true})
	for _, want := range []string{
		"1 of 4 rows are proven by a test that ran and passed.\n",
		"\n  SRC   P0  01\n  LIFE  P0  02\n  LIFE  P3  03\n",
		"\nSRC P0 0/1 P1 0/0 P2 0/0 P3 0/0\nLIFE P0 1/2 P1 0/0 P2 0/0 P3 0/1\nRT P0 0/0",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
	if lines := strings.Split(strings.TrimSpace(got), "\n"); !strings.HasPrefix(lines[len(lines)-1], "PLUG P0 ") {
		t.Errorf("the last line is %q", lines[len(lines)-1])
	}
}
