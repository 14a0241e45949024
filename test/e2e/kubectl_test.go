//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"keelson/test/images"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// shell is a pod with one container that runs a script.
func (s *space) shell(name, script string, edits ...spec) *corev1.Pod {
	s.t.Helper()
	if err := s.haveShell(); err != nil {
		s.t.Fatal(err)
	}
	return s.demo(name, nil, append([]spec{func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = images.Shell, []string{"sh", "-c", script}
	}}, edits...)...)
}

// haveShell imports the image with a shell on the node, once.
func (n *node) haveShell() error {
	n.shellOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		var busybox, archive string
		if busybox, n.shellErr = n.parts.StaticBusybox(ctx); n.shellErr != nil {
			return
		}
		if archive, n.shellErr = images.ShellArchive(ctx, busybox, n.Dir); n.shellErr != nil {
			return
		}
		n.shellErr = n.Runtime.Import(ctx, archive)
	})
	return n.shellErr
}

// untold runs until SIGTERM and then exits with 0 at once.
const untold = "trap 'exit 0' TERM; sleep 8640000 & wait"

// fed prints the lines that are written to /tmp/in; a line that begins with ! goes to standard
// error. It exits when it reads "end", with the code after that, if there is one.
const fed = `mkfifo /tmp/in; exec 3<>/tmp/in; while read -r l <&3; do case "$l" in end*) set -- $l; exit ${2:-0};; !*) echo "${l#?}" >&2;; *) echo "$l";; esac; done`

// feed writes a line to /tmp/in of a pod whose main container runs the script fed.
func (s *space) feed(pod, line string) {
	s.t.Helper()
	s.until(pod+" to listen", func() (string, bool) {
		out, err := s.kubectlCommand(s.t.Context(), s.ns, "exec", pod,
			"-c", "main", "--", "test", "-p", "/tmp/in").CombinedOutput()
		return string(out), err == nil
	})
	out, err := s.kubectlCommand(s.t.Context(), s.ns, "exec", pod,
		"-c", "main", "--", "sh", "-c", "echo '"+line+"' > /tmp/in").CombinedOutput()
	// A command that makes the container exit may be killed with it.
	if err != nil && !(strings.HasPrefix(line, "end") && strings.Contains(string(out), "exit code 137")) {
		s.t.Fatalf("feed %s with %q: %v, %s", pod, line, err, out)
	}
}

// kubectl is a kubectl process with which a test interacts while it runs.
type kubectl struct {
	t     *testing.T
	args  string
	in    io.WriteCloser
	lines chan string // its output; closed at the end of the output
	cmd   *exec.Cmd
	errs  bytes.Buffer
}

// kubectlStart starts kubectl. It is killed at the end of the test, if it still runs.
func (s *space) kubectlStart(args ...string) *kubectl {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	k := &kubectl{
		t:     s.t,
		args:  strings.Join(args, " "),
		cmd:   s.kubectlCommand(ctx, s.ns, args...),
		lines: make(chan string, 1000),
	}
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		k.in, err = k.cmd.StdinPipe()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	k.cmd.Stderr = &k.errs
	if err := k.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(k.lines)
		for all := bufio.NewScanner(out); all.Scan(); {
			k.lines <- all.Text()
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		for range k.lines {
		}
		_ = k.cmd.Wait() // the error is that it was killed, or waited for already
	})
	return k
}

// says returns the next line of the output.
func (k *kubectl) says() string {
	k.t.Helper()
	line, ok := <-k.lines
	if !ok {
		k.t.Fatalf("kubectl %s says no more: %v, %s", k.args, k.cmd.Wait(), &k.errs)
	}
	return line
}

// ends waits for the end and returns the lines that says has not returned.
func (k *kubectl) ends() ([]string, error) {
	var left []string
	for line := range k.lines {
		left = append(left, line)
	}
	return left, k.cmd.Wait()
}

// TestKubectlLogs reads logs with every option after they were written.
func TestKubectlLogs(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.shell("talk", fed, never, initContainer("first", "echo", "prepared"),
		func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name:  "other",
				Image: images.Demo,
				Args:  []string{"log", "3"},
			},
				corev1.Container{Name: "bare", Image: images.Shell, Command: []string{"printf", "no newline"}})
		}))
	s.pod("talk", "running", func(p *corev1.Pod) bool { return container(p, "main").State.Running != nil })
	// Each line is in the log before the next is written, because the two streams have no order. The
	// last line is written in another second.
	for _, line := range []string{"one", "two", "!wrong", "three"} {
		var written time.Time
		s.feed("talk", line)
		s.until(line+" in the log", func() (string, bool) {
			stamp, last, _ := strings.Cut(s.kubectlDo("logs", "talk", "-c", "main", "--tail=1", "--timestamps"), " ")
			at, err := time.Parse(time.RFC3339Nano, stamp)
			written = at
			return stamp + " " + last, err == nil && last == strings.TrimPrefix(line, "!")+"\n"
		})
		s.until("another second", func() (string, bool) { return written.String(), time.Since(written) > time.Second })
	}
	s.feed("talk", "end")
	s.phase("talk", corev1.PodSucceeded)
	const main, other = "one\ntwo\nwrong\nthree\n", "line 1\nline 2\nline 3\n"
	for _, c := range []struct{ args, want string }{
		{"logs talk -c main", main},
		{"logs talk -c other", other},
		{"logs talk -c first", "prepared\n"},
		{"logs talk -c main --tail=2", "wrong\nthree\n"},
		{"logs talk -c bare", "no newline"},
		{"logs talk -c main --since=1h", main},
		{"logs talk -c main --limit-bytes=5", "one\nt"},
		{"logs -f talk -c main", main},
	} {
		if got := s.kubectlDo(strings.Fields(c.args)...); got != c.want {
			t.Errorf("kubectl %s:\n%q\nwant\n%q", c.args, got, c.want)
		}
	}
	// kubectl reads the containers one after the other, in random order.
	all := strings.Split(s.kubectlDo("logs", "talk", "--all-containers", "--prefix", "--tail=2"), "[pod/talk/")
	for i := range all {
		all[i] = strings.TrimSuffix(all[i], "\n")
	}
	slices.Sort(all)
	if want := []string{"", "bare] no newline", "first] prepared", "main] three", "main] wrong", "other] line 2",
		"other] line 3"}; !slices.Equal(all, want) {
		t.Errorf("of all containers: %q, want %q", all, want)
	}
	// Without a name the first container is taken, and kubectl reports that.
	if got := s.kubectlDo("logs",
		"talk"); got != "Defaulted container \"main\" out of: main, other, bare, first (init)\n"+main {
		t.Errorf("without a name: %q", got)
	}
	// Each line has its time, and a log since a time begins there.
	var times []time.Time
	var words []string
	for line := range strings.Lines(s.kubectlDo("logs", "talk", "-c", "main", "--timestamps")) {
		stamp, word, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			t.Fatal(err)
		}
		times, words = append(times, at), append(words, word)
	}
	if !slices.Equal(words, []string{"one", "two", "wrong", "three"}) ||
		!slices.IsSortedFunc(times, time.Time.Compare) {
		t.Fatalf("with times: %v %q", times, words)
	}
	if p := s.phase("talk", corev1.PodSucceeded); times[0].Before(p.Status.StartTime.Time) ||
		times[3].After(container(p, "main").State.Terminated.FinishedAt.Add(time.Second)) {
		t.Errorf("lines from %s to %s, of a pod begun at %s whose container was %+v", times[0], times[3],
			p.Status.StartTime, container(p, "main").State.Terminated)
	}
	since := times[3].Truncate(time.Second) // a request has whole seconds
	if got := s.kubectlDo("logs", "talk", "-c", "main", "--since-time="+since.Format(time.RFC3339)); got != words[3]+
		"\n" {
		t.Errorf("since %s, with lines of %v: %q", since, times, got)
	}
	s.until("the log to be two seconds old", func() (string, bool) { return "", time.Since(times[3]) > 2*time.Second })
	if got := s.kubectlDo("logs", "talk", "-c", "main", "--since=1s"); got != "" {
		t.Errorf("of the last second: %q", got)
	}
	out, err := s.kubectlCommand(t.Context(), s.ns, "logs", "talk", "-c", "none").CombinedOutput()
	if err == nil ||
		string(out) != "error: container none is not valid for pod talk out of: main, other, bare, first (init)\n" {
		t.Errorf("of no container: %v, %q", err, out)
	}
}

// TestKubectlLogsOfTheInstanceBefore reads what a container wrote before it was restarted.
func TestKubectlLogsOfTheInstanceBefore(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.shell("again", "if [ -e /data/been ]; then echo second; "+untold+
		"; else touch /data/been; echo first; exit 3; fi", keepCount))
	p := s.pod("again", "restarted", func(p *corev1.Pod) bool {
		return rig.PodReady(p) && container(p, "main").RestartCount == 1
	})
	if end := container(p, "main").LastTerminationState.Terminated; end == nil || end.ExitCode != 3 {
		t.Errorf("the instance before ended as %+v", end)
	}
	s.until("the log of the new instance", func() (string, bool) {
		out := s.kubectlDo("logs", "again")
		return out, out == "second\n"
	})
	for _, args := range []string{"logs again -p", "logs again -p --tail=1", "logs -p again --all-containers"} {
		if got := s.kubectlDo(strings.Fields(args)...); got != "first\n" {
			t.Errorf("kubectl %s: %q", args, got)
		}
	}
	s.create(s.shell("once", untold))
	s.ready("once")
	out, err := s.kubectlCommand(t.Context(), s.ns, "logs", "once", "-p").CombinedOutput()
	if want := "Error from server (BadRequest): previous terminated container \"main\" in pod \"once\" not found\n"; err == nil || string(out) != want {
		t.Errorf("of an instance that never was: %v, %q, want %q", err, out, want)
	}
}

// TestKubectlFollowsLogs checks that each line arrives before the next is written.
func TestKubectlFollowsLogs(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.shell("talk", fed, never))
	s.ready("talk")
	whole := s.kubectlStart("logs", "-f", "talk")
	s.feed("talk", "a")
	if got := whole.says(); got != "a" {
		t.Errorf("the first line is %q", got)
	}
	late := s.kubectlStart("logs", "-f", "talk", "--tail=1", "--timestamps")
	for _, line := range []string{"a", "b", "c"} {
		if line != "a" {
			s.feed("talk", line)
			if got := whole.says(); got != line {
				t.Errorf("%q follows, want %q", got, line)
			}
		}
		stamp, got, _ := strings.Cut(late.says(), " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || got != line {
			t.Errorf("a later client sees %q, want %q (%v)", got, line, err)
		}
	}
	s.feed("talk", "end")
	for _, k := range []*kubectl{whole, late} {
		if left, err := k.ends(); err != nil || len(left) > 0 {
			t.Errorf("kubectl %s ends with %v after %q", k.args, err, left)
		}
	}
	if p := s.phase("talk", corev1.PodSucceeded); container(p, "main").RestartCount != 0 {
		t.Errorf("%+v", container(p, "main"))
	}
}

// TestKubectlExecInTerminal uses a shell in the pod interactively.
func TestKubectlExecInTerminal(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "SRV-19")
	s := shared(t).namespace(t)
	s.create(s.shell("box", untold))
	s.ready("box")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := inTerminal(t, s.kubectlCommand(ctx, s.ns, "exec", "-it", "box", "--", "sh"), 40, 100)
	// A computed value cannot be the echo of the input.
	size := func(want string) {
		t.Helper()
		s.until("size "+want, func() (string, bool) {
			m.types("echo size=$(stty size | tr ' ' x).\n")
			have := m.text()
			return fmt.Sprintf("%q", have), strings.Contains(have, "size="+want+".")
		})
	}
	size("40x100")
	m.resize(50, 132)
	size("50x132")
	m.types("kept=$((6 * 7)); cd /tmp\n")
	m.types("echo $kept.$(pwd).$(tty | cut -c1-9)\n")
	m.sees("42./tmp./dev/pts/")
	// A typed interrupt reaches the program in the pod, and not kubectl.
	m.types("sleep 4242424; echo code=$?.\n")
	s.until("the sleep to run", func() (string, bool) {
		out := s.kubectlDo("exec", "box", "--", "ps")
		return out, strings.Contains(out, "sleep 4242424")
	})
	m.types("\x03")
	s.until("the sleep to be interrupted", func() (string, bool) {
		out := s.kubectlDo("exec", "box", "--", "ps")
		return out, !strings.Contains(out, "sleep 4242424")
	})
	m.types("exit 7\n")
	var exit *exec.ExitError
	if shown, err := m.ended(); !errors.As(err, &exit) || exit.ExitCode() != 7 ||
		!strings.Contains(shown, "command terminated with exit code 7") {
		t.Errorf("the end: %v after %q", err, shown)
	}
	// Without a terminal the streams are separate and carry all bytes.
	sent := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{'e'}).Read(sent)
	cmd := s.kubectlCommand(ctx, s.ns,
		"exec", "-i", "box", "--", "sh", "-c", "tee /tmp/got; sha256sum /tmp/got >&2; tty >&2; exit 9")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(sent), &out, &errs
	err := cmd.Run()
	if !errors.As(err, &exit) || exit.ExitCode() != 9 || !bytes.Equal(out.Bytes(), sent) {
		t.Errorf("%v, %d bytes of %d came back", err, out.Len(), len(sent))
	}
	if want := fmt.Sprintf("%x  /tmp/got\nnot a tty\ncommand terminated with exit code 9\n",
		sha256.Sum256(sent)); errs.String() != want {
		t.Errorf("standard error %q, want %q", &errs, want)
	}
}

// TestKubectlAttach attaches to the first process of a container.
func TestKubectlAttach(t *testing.T) {
	t.Parallel()
	parity.ProvesPart(t, 2, "SRV-20")
	s := shared(t).namespace(t)
	s.create(s.shell("reads", `while read -r l; do echo "got $l"; echo "heard $l" >&2; done; echo bye; exit 5`, never,
		func(p *corev1.Pod) {
			p.Spec.Containers[0].Stdin, p.Spec.Containers[0].StdinOnce = true, true
		}))
	s.create(s.shell("sits", "exec sh",
		func(p *corev1.Pod) { p.Spec.Containers[0].Stdin, p.Spec.Containers[0].TTY = true, true }))
	s.ready("reads")
	k := s.kubectlStart("attach", "-i", "-q", "reads")
	for _, word := range []string{"one", "two words", "three"} {
		if _, err := io.WriteString(k.in, word+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := k.says(); got != "got "+word {
			t.Errorf("answer %q to %q", got, word)
		}
	}
	if err := k.in.Close(); err != nil { // the container's input ends with its first client
		t.Fatal(err)
	}
	if left, err := k.ends(); err != nil || !slices.Equal(left, []string{"bye"}) {
		t.Errorf("the end: %v, %q", err, left)
	}
	if got := k.errs.String(); got != "heard one\nheard two words\nheard three\n" {
		t.Errorf("standard error: %q", got)
	}
	if c := container(s.phase("reads", corev1.PodFailed), "main"); c.State.Terminated == nil ||
		c.State.Terminated.ExitCode != 5 {
		t.Errorf("container ended as %+v", c.State)
	}

	before := s.ready("sits")
	attach := func() *terminal {
		return inTerminal(t, s.kubectlCommand(t.Context(), s.ns, "attach", "-it", "sits"), 30, 90)
	}
	m := attach()
	m.types("kept=$((6 * 7)); echo $((2 * kept)).\n")
	m.sees("84.")
	// A client that leaves does not affect the others.
	if err := m.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.ended(); err == nil {
		t.Error("a killed kubectl ended well")
	}
	m = attach()
	// kubectl first sends a size with one more row and column, so that programs redraw, then the right one.
	m.types(
		"until [ \"$(stty size)\" = '30 90' ]; do sleep 0.1; done; echo $kept:$(stty size | tr ' ' x):$((1 + 1)).\n")
	m.sees("42:30x90:2.")
	if p := s.ready("sits"); container(p, "main").ContainerID != container(before, "main").ContainerID {
		t.Errorf("%+v", container(p, "main"))
	}
	m.types("exit\n")
	if shown, err := m.ended(); err != nil {
		t.Errorf("after the shell has ended: %v, %q", err, shown)
	}
	s.pod("sits", "restarted", func(p *corev1.Pod) bool { return container(p, "main").RestartCount == 1 })
}

// connections is the number of simultaneous connections through one kubectl port-forward.
const connections = 100

// TestKubectlForwardsManyConnections opens many connections, each with data of its
// own, before any of them ends.
func TestKubectlForwardsManyConnections(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("echo", []string{"mirror", "8080"}, listening))
	s.ready("echo")
	k := s.kubectlStart("port-forward", "--address", s.Loopback(), "pod/echo", ":8080")
	addr, to, _ := strings.Cut(strings.TrimPrefix(k.says(), "Forwarding from "), " -> ")
	if to != "8080" {
		t.Fatalf("forwarded to %q from %q", to, addr)
	}
	go func() {
		for range k.lines { // a line for each connection
		}
	}()
	open := make([]net.Conn, connections)
	for i := range open {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		open[i] = c
	}
	for round := range 2 { // the second round begins when every connection has completed the first
		var g errgroup.Group
		for i, c := range open {
			g.Go(func() error {
				if err := mirrored(c, byte(i), byte(round)); err != nil {
					return fmt.Errorf("connection %d, round %d: %w", i, round, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatalf("%v; kubectl: %s", err, &k.errs)
		}
	}
	// The end of a connection does not affect the others.
	for i, c := range open[:connections-1] {
		if err := c.Close(); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if err := mirrored(open[connections-1], 200, 0); err != nil {
		t.Errorf("the last connection: %v", err)
	}
}

// mirrored sends 128 KiB that no other connection sends and reads them back.
func mirrored(c net.Conn, who, round byte) error {
	sent, got := make([]byte, 128<<10), make([]byte, 128<<10)
	rand.NewChaCha8([32]byte{who, round}).Read(sent)
	var g errgroup.Group
	g.Go(func() error {
		_, err := c.Write(sent)
		return err
	})
	g.Go(func() error {
		_, err := io.ReadFull(c, got)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return errors.New("other bytes came back")
	}
	return nil
}

// TestKubectlCopies copies a tree into a pod and back.
func TestKubectlCopies(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.shell("box", untold, keepCount))
	s.ready("box")
	here := filepath.Join(t.TempDir(), "here")
	big := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{'c'}).Read(big)
	for name, f := range map[string]struct {
		mode fs.FileMode
		data []byte
	}{
		"plain.txt": {0o644, []byte("a line\n")}, "deep/er/script.sh": {0o755, []byte("#!/bin/sh\n")},
		"deep/big": {0o600, big}, "empty": {0o640, nil},
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(here, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(here, name), f.data, f.mode); err != nil {
			t.Fatal(err)
		}
	}
	s.kubectlDo("cp", here, "box:/data/there")
	want := fmt.Sprintf("%x  /data/there/deep/big\n", sha256.Sum256(big))
	if got := s.kubectlDo("exec", "box", "--", "sha256sum", "/data/there/deep/big"); got != want {
		t.Errorf("in the pod: %s, want %s", got, want)
	}
	if got := s.kubectlDo("exec", "box", "--", "stat", "-c", "%a %n", "/data/there/deep/er/script.sh",
		"/data/there/empty"); got != "755 /data/there/deep/er/script.sh\n640 /data/there/empty\n" {
		t.Errorf("in the pod: %s", got)
	}
	s.kubectlDo("exec", "box", "--", "sh", "-c", "echo of the pod > /data/there/new")
	back := filepath.Join(t.TempDir(), "back")
	s.kubectlDo("cp", "box:/data/there", back)
	if err := os.WriteFile(filepath.Join(here, "new"), []byte("of the pod\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if a, b := tree(t, here), tree(t, back); a != b {
		t.Errorf("what came back is\n%s\nwant\n%s", b, a)
	}
	one := filepath.Join(t.TempDir(), "one")
	s.kubectlDo("cp", "box:/data/there/plain.txt", one)
	if data, err := os.ReadFile(one); err != nil || string(data) != "a line\n" {
		t.Errorf("one file: %q, %v", data, err)
	}
}

// tree lists the checksum and name of all files below a directory. Modes are not compared:
// kubectl does not keep them when it copies from a pod.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x %s\n", sha256.Sum256(data), strings.TrimPrefix(path, dir))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestKubectlDebug debugs a running pod that has no shell, and the node.
func TestKubectlDebug(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	if err := s.haveShell(); err != nil {
		t.Fatal(err)
	}
	s.create(s.demo("web", []string{"serve"}, listening))
	before := s.ready("web")
	m := inTerminal(t,
		s.kubectlCommand(t.Context(), s.ns, "debug", "-it", "web", "--image="+images.Shell,
			"--target=main", "--container=dbg", "--", "sh"), 30, 90)
	// The ephemeral container shares the processes and the network of its target, and has its own files.
	m.types(
		"echo $((6 * 7)):$(tr '\\0' ' ' < /proc/1/cmdline):$(ls /proc/1/root/demo):$(ls /demo 2>/dev/null | wc -l):\n",
	)
	m.sees("42:/demo serve :/proc/1/root/demo:0:")
	m.types("wget -qO- http://127.0.0.1:8080/ | sed 's/^/> /'\n")
	m.sees("> hello from web, request ")
	m.types("exit 4\n")
	if shown, err := m.ended(); err != nil {
		t.Errorf("kubectl debug: %v, %q", err, shown)
	}
	p := s.pod("web", "left", func(p *corev1.Pod) bool { return container(p, "dbg").State.Terminated != nil })
	if c := container(p, "dbg"); c.State.Terminated.ExitCode != 4 || c.RestartCount != 0 {
		t.Errorf("the ephemeral container: %+v", c)
	}
	if !rig.PodReady(p) || container(p, "main").ContainerID != container(before, "main").ContainerID ||
		container(p, "main").RestartCount != 0 {
		t.Error("the pod was disturbed")
	}
	if log := s.kubectlDo("logs", "web", "-c", "dbg"); !strings.Contains(log, "> hello from web, request ") {
		t.Errorf("log of the ephemeral container: %q", log)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	m = inTerminal(t,
		s.kubectlCommand(t.Context(), s.ns, "debug", "-it", "node/"+s.Kubelet.Node, "--image="+images.Shell,
			"--", "sh"), 30, 90)
	m.types("echo $((6 * 7)):$(hostname):$(ls -d /host" + s.Kubelet.Manifests + "):\n")
	m.sees("42:" + name + ":/host" + s.Kubelet.Manifests + ":")
	m.types("exit\n")
	if shown, err := m.ended(); err != nil {
		t.Errorf("kubectl debug node: %v, %q", err, shown)
	}
}
