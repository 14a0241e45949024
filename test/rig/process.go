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

// program is what a process is started from.
type program struct {
	name string // of the log file and in the ledger
	kind string
	path string
	args []string
	env  []string // beside the rig's own environment
	dir  string
}

// process is a running program: our child, or one found in the ledger.
type process struct {
	name string
	who
	log  string
	done chan struct{} // closed when it has ended
	err  error         // how it ended, once done is closed
}

// start runs a program in a session of its own, so that an interrupt typed at
// the terminal reaches us and not it, with its output appended to a log.
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

// stop asks the process to end and ends it after grace.
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

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.signal(unix.SIGKILL)
	<-p.done
}

// signal reaches the process itself, not a later one with its number.
func (p *process) signal(s unix.Signal) {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if p.alive() {
		// The only failure left is that it ended meanwhile.
		_ = unix.PidfdSendSignal(fd, s, nil, 0)
	}
}

// failed is the error for a process that ended when it should not have.
func (p *process) failed() error {
	return fmt.Errorf("%s ended: %v\n%s", p.name, p.err, p.lastWords())
}

// lastWords is the end of the log.
func (p *process) lastWords() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// until asks again and again whether the process is ready, and gives up when
// it ends or the context does. Programs here offer no event for it.
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
			last = err // else it only says that time is over
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

// identify reads when a process started, which with its number names it.
func identify(pid int) (who, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return who{Pid: pid}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	// The command in parentheses may hold anything; what follows is plain.
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(f) < 20 {
		return who{Pid: pid}, fmt.Errorf("identify process %d: unexpected stat %q", pid, data)
	}
	return who{Pid: pid, Start: f[19]}, nil
}

// alive tells whether the process is there; one that waits to be collected
// counts as gone.
func (w who) alive() bool {
	now, err := identify(w.Pid)
	if err != nil || now.Start != w.Start {
		return false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Pid))
	return err == nil && !bytes.Contains(data, []byte(") Z "))
}

// adopt makes a process of a ledger entry.
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
