package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

func TestPaths(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-43")
	if DefaultPodLogsDir != "/var/log/pods" || ContainerLogsDir != "/var/log/containers" {
		t.Errorf("logs are in %s and %s", DefaultPodLogsDir, ContainerLogsDir)
	}
	ref := pod.Ref{UID: "u-1", Namespace: "ref", Name: "web"}
	if got, want := filepath.Join(PodDir("/var/log/pods", ref),
		File("main", 3)), "/var/log/pods/ref_web_u-1/main/3.log"; got != want {
		t.Errorf("a log is %s, want %s", got, want)
	}
	if got, want := ContainerDir("/var/log/pods", ref, "main"), "/var/log/pods/ref_web_u-1/main"; got != want {
		t.Errorf("ContainerDir = %s, want %s", got, want)
	}
	if got, want := LinkName(ref, "main", "abc"), "web_ref_main-abc.log"; got != want {
		t.Errorf("LinkName = %s, want %s", got, want)
	}
	ref.Name = strings.Repeat("x", 300)
	if got := LinkName(ref, "main", "abc"); len(got) != 255 || !strings.HasSuffix(got, "xxx.log") {
		t.Errorf("LinkName of a long name = %s (%d), want 255 characters that end in .log", got, len(got))
	}
}

func TestParse(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-49")
	at := time.Date(2016, 10, 6, 0, 17, 9, 669794202, time.UTC)
	for _, tc := range []struct {
		raw  string
		want line
		bad  bool
	}{
		{raw: "2016-10-06T00:17:09.669794202Z stdout F hello world\n", want: line{at, Stdout, []byte("hello world\n")}},
		{raw: "2016-10-06T00:17:09.669794202Z stderr P a piece\n", want: line{at, Stderr, []byte("a piece")}},
		{raw: "2016-10-06T00:17:09.669794202Z stdout F:later:tags x\n", want: line{at, Stdout, []byte("x\n")}},
		{raw: "2016-10-06T00:17:09.669794202Z stdout F \n", want: line{at, Stdout, []byte("\n")}},
		{raw: "2016-10-06T02:17:09.669794202+02:00 stdout F cut", want: line{at, Stdout, []byte("cut")}},
		{
			raw:  `{"log":"hello\n","stream":"stderr","time":"2016-10-06T00:17:09.669794202Z"}` + "\n",
			want: line{at, Stderr, []byte("hello\n")},
		},
		{raw: "2016-10-06T00:17:09Z stdlog F x\n", bad: true},
		{raw: "2016-10-06T00:17:09Z stdout F", bad: true},
		{raw: "yesterday stdout F x\n", bad: true},
		{raw: `{"log":"x","stream":"other"}`, bad: true},
		{raw: `{"log":`, bad: true},
		{raw: "\n", bad: true},
		{raw: "", bad: true},
	} {
		got, err := parse([]byte(tc.raw))
		if (err != nil) != tc.bad || !got.time.Equal(tc.want.time) || got.stream != tc.want.stream ||
			!bytes.Equal(got.text, tc.want.text) {
			t.Errorf("parse(%q) = %v %s %q, %v; want %v %s %q, bad %v", tc.raw, got.time, got.stream, got.text, err,
				tc.want.time, tc.want.stream, tc.want.text, tc.bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("2016-10-06T00:17:09.669794202Z stdout F hello world\n"))
	f.Add([]byte(`{"log":"hello\n","stream":"stderr","time":"2016-10-06T00:17:09.669794202Z"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := parse(raw)
		if err == nil && l.stream != Stdout && l.stream != Stderr {
			t.Errorf("parse(%q) gave stream %q", raw, l.stream)
		}
	})
}

func TestTailStartMatchesReference(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var b []byte
		for range rnd.IntN(40) {
			b = append(b, strings.Repeat("x", rnd.IntN(2500))...)
			b = append(b, '\n')
		}
		if rnd.IntN(2) == 0 {
			b = append(b, "unfinished"...)
		}
		n := rnd.Int64N(45)
		lines := bytes.SplitAfter(b, []byte{'\n'})
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1]
		}
		want := int64(len(b))
		for i := len(lines) - 1; i >= 0 && i >= len(lines)-int(n); i-- {
			want -= int64(len(lines[i]))
		}
		got, err := tailStart(bytes.NewReader(b), int64(len(b)), n)
		if err != nil || got != want {
			t.Fatalf("tailStart of %d lines, last %d = %d, %v; want %d", len(lines), n, got, err, want)
		}
	}
}

// newLog creates a log below a root of its own and returns its path.
func newLog(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "ns_pod_uid", "main", "0.log")
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	return p
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func criLine(sec int, stream, tag, text string) string {
	return fmt.Sprintf("2024-01-01T00:00:%02d.5Z %s %s %s\n", sec, stream, tag, text)
}

func TestFollowWithoutInotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newLog(t, criLine(0, "stdout", "F", "one"))
		p, err := at("", path)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		p.dir += "-unwatched"
		f, err := p.open()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		looks := 0
		r := &reader{
			place: p,
			file:  f,
			opts:  Options{Follow: true},
			out:   writer{stdout: &out},
			isRunning: func(context.Context) (bool, error) {
				if looks++; looks == 2 {
					appendTo(t, path, criLine(1, "stdout", "F", "two"))
				}
				return looks < 3, nil
			},
		}
		defer func() { _ = r.file.Close() }()
		if err := r.run(t.Context()); err != nil || out.String() != "one\ntwo\n" {
			t.Errorf("followed %q, %v", out.String(), err)
		}
	})
}

func TestReadLogs(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-49")
	content := criLine(1, "stdout", "F", "one") +
		criLine(2, "stderr", "F", "two") +
		"garbage\n" +
		criLine(3, "stdout", "P", "thr") +
		criLine(4, "stdout", "F", "ee") +
		strings.TrimSuffix(criLine(5, "stdout", "F", "five"), "\n")
	for _, tc := range []struct {
		name     string
		opts     Options
		out, err string
	}{
		{"everything", Options{}, "one\nthree\nfive", "two\n"},
		{"one stream", Options{Stream: Stderr}, "", "two\n"},
		{"the last lines of the file, pieces counted", Options{TailLines: ptr.To[int64](2)}, "ee\nfive", ""},
		{"no lines", Options{TailLines: ptr.To[int64](0)}, "", ""},
		{"more lines than the log has", Options{TailLines: ptr.To[int64](99)}, "one\nthree\nfive", "two\n"},
		{"since a time", Options{Since: time.Date(2024, 1, 1, 0, 0, 4, 0, time.UTC)}, "ee\nfive", ""},
		{"as many bytes as allowed", Options{LimitBytes: ptr.To[int64](9)}, "one\nt", "two\n"},
		{"no bytes", Options{LimitBytes: ptr.To[int64](0)}, "", ""},
		{"stamps at the beginning of lines", Options{Timestamps: true},
			"2024-01-01T00:00:01.500000000Z one\n2024-01-01T00:00:03.500000000Z three\n2024-01-01T00:00:05.500000000Z five",
			"2024-01-01T00:00:02.500000000Z two\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if err := ReadLogs(t.Context(), newLog(t, content), tc.opts, &out, &errs, nil); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.out || errs.String() != tc.err {
				t.Errorf("read %q and %q, want %q and %q", &out, &errs, tc.out, tc.err)
			}
		})
	}
}

// TestReadLogsCallsOpened: Opened is called when the log is open, even if the container has written
// nothing.
func TestReadLogsCallsOpened(t *testing.T) {
	reported := 0
	opts := Options{Opened: func() { reported++ }}
	if err := ReadLogs(t.Context(), newLog(t, ""), opts, nil, nil, nil); err != nil || reported != 1 {
		t.Errorf("Opened was called %d times, %v", reported, err)
	}
	if err := ReadLogs(t.Context(), newLog(t, "")+".none", opts, nil, nil, nil); err == nil || reported != 1 {
		t.Errorf("without a log: Opened was called %d times, %v", reported, err)
	}
}

func TestReadLogsSkipsLongLines(t *testing.T) {
	p := newLog(t,
		criLine(1, "stdout", "F",
			strings.Repeat("x", maxLine+10))+criLine(2, "stdout", "F", strings.Repeat("y", block*3))+
			criLine(3, "stdout", "F",
				"end"))
	var out bytes.Buffer
	if err := ReadLogs(t.Context(), p, Options{}, &out, nil, nil); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("y", block*3) + "\nend\n"; out.String() != want {
		t.Errorf("read %d bytes, want %d: the long line whole and the absurd one not at all", out.Len(), len(want))
	}
}

func TestSince(t *testing.T) {
	now := time.Unix(1000, 0)
	if got := Since(ptr.To[int64](10), time.Unix(5, 0), now); !got.Equal(time.Unix(990, 0)) {
		t.Errorf("Since(10s) = %v, want ten seconds ago", got)
	}
	if got := Since(nil, time.Unix(5, 0), now); !got.Equal(time.Unix(5, 0)) {
		t.Errorf("Since(time) = %v, want that time", got)
	}
}

func TestReadLogsStaysInLogDirectory(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(criLine(1, "stdout", "F", "secret")), 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(p, target string) {
		t.Helper()
		if err := os.RemoveAll(p); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		path func(log string) string
	}{
		{"the file is a link to the host", func(p string) string { link(p, secret); return p }},
		{"the container's directory is a link to the host", func(p string) string {
			link(filepath.Dir(p), filepath.Dir(secret))
			return filepath.Join(filepath.Dir(p), "secret")
		}},
		{"the file is a pipe", func(p string) string {
			if err := os.Remove(p); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(p, 0o600); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"the file is a directory", func(p string) string { return filepath.Dir(p) + "/../main/." }},
		{"the path is relative", func(p string) string { return "main/0.log" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			err := ReadLogs(t.Context(), tc.path(newLog(t, "")), Options{}, &out, &out, nil)
			if err == nil || out.Len() > 0 {
				t.Errorf("ReadLogs = %v with %q, want an error and nothing", err, &out)
			}
		})
	}
	p := newLog(t, "")
	if err := ReadLogs(t.Context(), p, Options{Root: filepath.Dir(p) + "/elsewhere"}, nil, nil, nil); err == nil {
		t.Error("ReadLogs outside of its root gave no error")
	}
}

// cri-dockerd makes the log of a container a symlink to the file that Docker writes and rotates.
func TestReadDockerLogs(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-49")
	id, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	entry := func(text string) string {
		return `{"log":"` + text + `\n","stream":"stdout","time":"2024-01-01T00:00:00.5Z"}` + "\n"
	}
	put := func(t *testing.T, dir, file, text string) string {
		t.Helper()
		full := filepath.Join(t.TempDir(), "containers", dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755),
			os.WriteFile(full, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
		return full
	}
	linked := func(t *testing.T, target string) string {
		t.Helper()
		p := newLog(t, "")
		if err := errors.Join(os.Remove(p), os.Symlink(target, p)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Run("the link is followed, and rotations are", func(t *testing.T) {
		written := put(t, id, id+"-json.log", entry("one"))
		p := linked(t, written)
		if text, err := Tail(t.Context(), p, 2048, 80); err != nil || text != "one\n" {
			t.Errorf("Tail = %q, %v", text, err)
		}
		var out syncBuffer
		var ended atomic.Bool
		done := make(chan error, 1)
		go func() {
			done <- ReadLogs(t.Context(), p, Options{Follow: true}, &out, nil,
				func(context.Context) (bool, error) { return !ended.Load(), nil })
		}()
		awaitLine(t, &out, "one")
		appendTo(t, written, entry("two"))
		awaitLine(t, &out, "two")
		if err := errors.Join(os.WriteFile(written+".2", []byte(entry("old")), 0o640), os.Rename(written, written+".1"),
			os.WriteFile(written, []byte(entry("three")), 0o640)); err != nil {
			t.Fatal(err)
		}
		awaitLine(t, &out, "three")
		ended.Store(true)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := out.lines(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("followed %q", got)
		}
	})
	for name, target := range map[string]func(t *testing.T) string{
		"a file of another name": func(t *testing.T) string { return put(t, id, "x.log", entry("secret")) },
		"the file of another id": func(t *testing.T) string { return put(t, id, other+"-json.log", entry("secret")) },
		"an id that is none":     func(t *testing.T) string { return put(t, "ab", "ab-json.log", entry("secret")) },
		"a link to another directory": func(t *testing.T) string {
			secret := put(t, "x", "secret", entry("secret"))
			file := put(t, id, id+"-json.log", "")
			if err := errors.Join(os.Remove(file), os.Symlink(secret, file)); err != nil {
				t.Fatal(err)
			}
			return file
		},
		"a link beside it": func(t *testing.T) string {
			file := put(t, id, id+"-json.log", "")
			beside := filepath.Join(filepath.Dir(file), "secret")
			if err := errors.Join(os.WriteFile(beside, []byte(entry("secret")), 0o640), os.Remove(file),
				os.Symlink("secret", file)); err != nil {
				t.Fatal(err)
			}
			return file
		},
	} {
		t.Run("not "+name, func(t *testing.T) {
			var out bytes.Buffer
			if err := ReadLogs(t.Context(), linked(t, target(t)), Options{}, &out, &out, nil); err == nil ||
				out.Len() > 0 {
				t.Errorf("ReadLogs = %v with %q, want an error and nothing", err, &out)
			}
		})
	}
}

func TestTail(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		b.WriteString(criLine(1, []string{"stdout", "stderr"}[i%2], "F", fmt.Sprintf("line %03d", i)))
	}
	p := newLog(t, b.String())
	got, err := Tail(t.Context(), p, 2048, 80)
	if err != nil || !strings.HasPrefix(got, "line 120\n") || !strings.HasSuffix(got, "line 199\n") {
		t.Errorf("Tail of 80 lines = %q, %v", got, err)
	}
	got, err = Tail(t.Context(), p, 12, 80)
	if want := "98\nline 199\n"; err != nil || got != want {
		t.Errorf("Tail of 12 bytes = %q, %v; want %q", got, err, want)
	}
}

// syncBuffer is a buffer that a reader fills while a test reads it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(strings.TrimSuffix(s.b.String(), "\n"), "\n")
}

func awaitLine(t *testing.T, out *syncBuffer, line string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("the line %q", line), func() (string, bool) {
		lines := out.lines()
		return fmt.Sprintf("%q", lines), slices.Contains(lines, line)
	})
}

func TestFollowAcrossRotations(t *testing.T) {
	p := newLog(t, criLine(0, "stdout", "F", "0"))
	var running atomic.Bool
	running.Store(true)
	var out syncBuffer
	done := make(chan error, 1)
	go func() {
		done <- ReadLogs(t.Context(), p, Options{Follow: true}, &out, &out,
			func(context.Context) (bool, error) { return running.Load(), nil })
	}()

	awaitLine(t, &out, "0")
	want := []string{"0"}
	write := func(f *os.File) {
		n := fmt.Sprint(len(want))
		if _, err := f.WriteString(criLine(1, "stdout", "F", n)); err != nil {
			t.Error(err)
		}
		want = append(want, n)
	}
	f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		for range 100 {
			write(f)
		}
		// The order of a rotation: rename, new file, the last lines to the old file, and only then
		// the first to the new one.
		if err := os.Rename(p, fmt.Sprintf("%s.20240101-00000%d", p, round)); err != nil {
			t.Fatal(err)
		}
		next, err := os.Create(p)
		if err != nil {
			t.Fatal(err)
		}
		write(f)
		f.Close()
		f = next
	}
	write(f)
	f.Close()
	running.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := out.lines(); !slices.Equal(got, want) {
		t.Errorf("followed %d lines, want %d; last %q and %q", len(got), len(want), got[len(got)-1], want[len(want)-1])
	}
}

func TestFollowContextCancelled(t *testing.T) {
	p := newLog(t, criLine(1, "stdout", "F", "one"))
	ctx, cancel := context.WithCancel(t.Context())
	var out syncBuffer
	done := make(chan error, 1)
	go func() {
		done <- ReadLogs(ctx, p, Options{Follow: true, TailLines: ptr.To[int64](1)}, &out, &out,
			func(context.Context) (bool, error) { return true, nil })
	}()
	f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(criLine(2, "stdout", "F", "two")); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, &out, "two")
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("ReadLogs = %v, want the end of its context", err)
	}
}
