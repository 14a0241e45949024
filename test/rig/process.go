package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// program describes a process to start.
type program struct {
	name string // of the log file and in the ledger
	kind string
	path string
	args []string
	env  []string // in addition to the rig's own environment
	dir  string
}

// process is a running program: a child process, or one from the ledger.
type process struct {
	name string
	who
	log  string
	done chan struct{} // closed when it has ended
	err  error         // how it ended, once done is closed
}

// start runs a program and appends its output to a log. The program gets a session of its own, so that an interrupt at
// the terminal does not reach it.
func (r *Rig) start(p program) (*process, error) {
	logFile := filepath.Join(r.Logs, p.name+".log")
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	defer out.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	proc := &process{name: p.name, log: logFile, done: make(chan struct{})}
	proc.who, err = identify(cmd.Process.Pid)
	go func() {
		proc.err = cmd.Wait()
		close(proc.done)
	}()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w\n%s", p.name, err, proc.lastWords())
	}
	err = r.book.note(func(pg *page) {
		pg.Processes = append(pg.Processes, entry{Name: p.name, Kind: p.kind, who: proc.who})
		r.book.live[p.name] = proc
	})
	if err != nil {
		proc.kill()
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return proc, nil
}

// stop sends SIGTERM to the process, and SIGKILL after grace.
func (p *process) stop(grace time.Duration) {
	p.signal(unix.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.kill()
	}
}

// kill sends SIGKILL to the process and waits until it has ended.
func (p *process) kill() {
	p.signal(unix.SIGKILL)
	<-p.done
}

// signal sends a signal to the process. It never reaches a later process with the same number.
func (p *process) signal(s unix.Signal) {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if p.alive() {
		// The only possible error is that the process has ended meanwhile.
		_ = unix.PidfdSendSignal(fd, s, nil, 0)
	}
}

// failed returns the error for a process that ended unexpectedly.
func (p *process) failed() error {
	return fmt.Errorf("%s ended: %v\n%s", p.name, p.err, p.lastWords())
}

// lastWords returns the end of the log.
func (p *process) lastWords() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// until polls ready until it returns no error. It fails when the process or the context ends. The programs have no
// event for their readiness.
func (p *process) until(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := ready(try)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // after the end of the context the error would only say that time is over
		}
		select {
		case <-p.done:
			return p.failed()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last: %v)\n%s", p.name, context.Cause(ctx), last, p.lastWords())
		case <-tick.C:
		}
	}
}

// identify reads the start time of a process. Start time and number together identify it.
func identify(pid int) (who, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return who{Pid: pid}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	// The command in parentheses may contain any character. The fields after it are separated by spaces.
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(f) < 20 {
		return who{Pid: pid}, fmt.Errorf("identify process %d: unexpected stat %q", pid, data)
	}
	return who{Pid: pid, Start: f[19]}, nil
}

// alive returns whether the process exists and is not a zombie.
func (w who) alive() bool {
	now, err := identify(w.Pid)
	if err != nil || now.Start != w.Start {
		return false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Pid))
	return err == nil && !bytes.Contains(data, []byte(") Z "))
}

// adopt returns the process of a ledger entry.
func adopt(e entry, logs string) *process {
	p := &process{name: e.Name, who: e.who, log: filepath.Join(logs, e.Name+".log"), done: make(chan struct{})}
	go func() {
		p.err = await(e.who)
		close(p.done)
	}()
	return p
}

// await returns when a process that is not our child has ended.
func await(w who) error {
	fd, err := unix.PidfdOpen(w.Pid, 0)
	if err != nil {
		return nil // gone
	}
	defer unix.Close(fd)
	if !w.alive() {
		return nil
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// processes lists the running processes that which accepts.
func processes(which func(pid int) bool) []who {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []who
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() || !which(pid) {
			continue
		}
		if w, err := identify(pid); err == nil && w.alive() {
			out = append(out, w)
		}
	}
	return out
}
