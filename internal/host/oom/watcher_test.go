package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

func TestParse(t *testing.T) {
	const memcg = "3,1000,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/" +
		"kubepods/pod1,task_memcg=/kubepods/pod1/c,task=stress,pid=77,uid=0"
	// A kill for the whole machine, although the process is in the cgroup of a pod.
	const pod = "6,1000,5,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom," +
		"task_memcg=/kubepods/pod1/c,task=java,pid=78,uid=0"
	global := func(task string) string {
		return "6,1000,5,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom," +
			"task_memcg=/,task=" + task + ",pid=1234,uid=1000\n SUBSYSTEM=x\n"
	}
	for record, want := range map[string]Kill{
		memcg:                             {"stress", 77, "/kubepods/pod1/c", false},
		pod:                               {"java", 78, "/kubepods/pod1/c", true},
		global("tail"):                    {"tail", 1234, "/", true},
		global("a b,pid=1"):               {"a b,pid=1", 1234, "/", true},
		global("x,task=y"):                {"x,task=y", 1234, "/", true},
		global("x,oom_memcg=/,task=y"):    {"x,oom_memcg=/,task=y", 1234, "/", true},
		"14" + global("tail")[1:]:         {}, // not logged by the kernel
		"6,1,2,-;Killed process 5 (tail)": {},
		"oom-kill:constraint=x":           {},
		"":                                {},
		";":                               {},
	} {
		if got, ok := Parse(record); got != want || ok != (want.PID != 0) {
			t.Errorf("%q: %+v, %v", record, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("6,1000,5,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/,task=tail,pid=1234,uid=0")
	f.Fuzz(func(t *testing.T, record string) {
		if k, ok := Parse(record); ok && !strings.Contains(record, k.Process) {
			t.Errorf("%q: %+v", record, k)
		}
	})
}

// records is a kernel log. An item of left is a record, or an error that Read returns.
type records struct {
	mu     sync.Mutex
	left   []any
	closed chan struct{}
}

func (r *records) Read(into []byte) (int, error) {
	r.mu.Lock()
	if len(r.left) == 0 {
		r.mu.Unlock()
		<-r.closed
		return 0, os.ErrClosed
	}
	next := r.left[0]
	r.left = r.left[1:]
	r.mu.Unlock()
	if err, ok := next.(error); ok {
		return 0, err
	}
	return copy(into, next.(string)), nil
}

func (r *records) Close() error { close(r.closed); return nil }

type heard chan string

func (h heard) Node(kind, reason, message string) { h <- kind + " " + reason + ": " + message }

func TestSystemOOMEvent(t *testing.T) {
	parity.Proves(t, "EVIC-30")
	kill := func(scope, cgroup, task string) string {
		return fmt.Sprintf(
			"6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),%s,task_memcg=%s,task=%s,pid=9,uid=0",
			scope, cgroup, task)
	}
	const machine, pod = "global_oom", "oom_memcg=/kubepods/x"
	log := &records{
		closed: make(chan struct{}),
		left: []any{
			"6,1,1,-;hello", kill(pod, "/kubepods/x/c", "not-this"), error(&os.PathError{Op: "read", Err: unix.EPIPE}),
			kill(machine, "/", "first"), kill(machine, "/system.slice/x", "second"),
			kill(pod, "/kubepods/x", "nor-this"),
			kill(machine, "/kubepods/x/c", "third"),
		},
	}
	h := make(heard, 10)
	w := New(Config{
		Open:   func() (io.ReadCloser, error) { return log, nil },
		OnKill: RecordEvents(h),
		Log:    slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for _, name := range []string{"first", "second", "third"} {
		if got, want := <-h, "Warning SystemOOM: System OOM encountered, victim process: "+name+
			", pid: 9"; got != want {
			t.Errorf("reported %q, want %q", got, want)
		}
	}
	stop()
	if err := <-done; err != nil || len(h) != 0 {
		t.Errorf("%v, and %d more were reported", err, len(h))
	}
}

func TestWithoutKernelLog(t *testing.T) {
	w := New(Config{
		Open:   func() (io.ReadCloser, error) { return nil, errors.New("no such device") },
		OnKill: func(Kill) {},
		Log:    slog.New(slog.DiscardHandler),
	})
	if err := w.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// eats is the environment variable that makes the test binary the process that is killed.
const eats = "KEELSON_TEST_EATS_IN"

// eat allocates memory in a cgroup until the process is killed.
func eat(t *testing.T, procs string) {
	if err := os.WriteFile(procs, []byte(fmt.Sprint(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	held := make([]byte, 1<<30)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	t.Fatal("not killed with ", len(held))
}

// TestParseKernelMessages: the kernel kills a process at the memory limit of its cgroup, and the
// Watcher reports it.
func TestParseKernelMessages(t *testing.T) {
	if procs := os.Getenv(eats); procs != "" {
		eat(t, procs)
	}
	need.Root(t, "making a cgroup")
	parent, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(parent, limit)); err != nil {
		need.Skip(t, "this machine has no memory controller on cgroup v1", err)
	}
	dir, err := os.MkdirTemp(parent, "keelson-oom-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, limit), []byte("16777216"), 0o644); err != nil {
		t.Fatal(err)
	}
	kills := make(chan Kill, 10)
	opened := make(chan struct{})
	w := New(Config{
		OnKill: func(k Kill) { kills <- k },
		Log:    slog.New(slog.DiscardHandler),
		Open: func() (io.ReadCloser, error) {
			defer close(opened)
			return Kmsg()
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-opened
	// The kernel limits the rate of these messages, so that kills of other processes may suppress some.
	ours, reported := map[int]bool{}, false
	for try := 0; !reported && try < 10; try++ {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestParseKernelMessages$")
		cmd.Env = append(os.Environ(), eats+"="+filepath.Join(dir, "cgroup.procs"))
		err = cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || cmd.ProcessState.Success() {
			t.Fatalf("the process was not killed: %v", err)
		}
		ours[cmd.Process.Pid] = true
		for again := time.After(10 * time.Second); !reported && again != nil; {
			select {
			case k := <-kills:
				if reported = ours[k.PID]; reported && (k.Process != "exe" || k.Cgroup != "/"+filepath.Base(dir)) {
					t.Errorf("kill %+v", k)
				}
			case <-again:
				again = nil
			}
		}
	}
	if !reported {
		t.Errorf("no kill was reported of %v", ours)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
