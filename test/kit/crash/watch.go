package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// linger is the longest time for which the programs of a killed victim are held before they continue. The
// next process of the test may have begun by then.
const linger = 200 * time.Millisecond

// notification and response are struct seccomp_notif and seccomp_notif_resp.
type notification struct {
	id    uint64
	pid   uint32 // of the thread
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// listener is where a victim's changes are reported.
type listener struct {
	fd     int
	victim int
}

// listenTo takes a copy of the victim's listener, which the victim calls fd.
func listenTo(victim, fd int) (*listener, error) {
	process, err := unix.PidfdOpen(victim, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", victim, err)
	}
	defer unix.Close(process)
	own, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return nil, fmt.Errorf("take listener %d of process %d: %w", fd, victim, err)
	}
	return &listener{own, victim}, nil
}

// change is one call that has not had its effect yet.
type change struct {
	call string
	by   string // the program; empty for the victim itself
}

func (c change) String() string {
	if c.by == "" {
		return "at its " + c.call
	}
	return "at " + c.call + " of " + c.by
}

// serve lets changes happen until the victim and all that it started have ended.
// f is called for each change before it happens. If it returns true, the victim is
// dead; the first change of another process after that happens a moment later.
func (l *listener) serve(f func(change) (dead bool)) error {
	defer unix.Close(l.fd)
	lingered := false
	for {
		poll := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for changes: %w", err)
		}
		switch {
		case poll[0].Revents&unix.POLLIN != 0:
		case poll[0].Revents != 0:
			return nil
		default:
			continue
		}
		var n notification
		if errno := ioctl(l.fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); errno != 0 {
			if errno == unix.ENOENT || errno == unix.EINTR { // the caller is dead
				continue
			}
			return fmt.Errorf("hear of a change: %w", errno)
		}
		c := change{nameOf(uintptr(n.nr)), l.program(int(n.pid))}
		if f(c) {
			if c.by == "" {
				continue // it dies without an answer; with one, the change might still happen
			}
			if !lingered {
				lingered = true
				time.Sleep(rand.N(linger))
			}
		}
		answer := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if errno := ioctl(l.fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)); errno != 0 &&
			errno != unix.ENOENT {
			return fmt.Errorf("let a change happen: %w", errno)
		}
	}
}

func ioctl(fd int, what uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), what, uintptr(arg))
	return errno
}

// program is the name of the program that a thread belongs to; empty for the victim.
func (l *listener) program(thread int) string {
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(l.victim), "task", strconv.Itoa(thread))); err == nil {
		return ""
	}
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(thread), "comm"))
	if err != nil {
		return "a program"
	}
	return strings.TrimSpace(string(name))
}
