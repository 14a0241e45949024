package crash

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The environment of a victim: which work it does, and on what.
const (
	workEnv = "KEELSON_TEST_VICTIM"
	dirEnv  = "KEELSON_TEST_VICTIM_DIR"
)

// reportFD is the pipe on which a victim reports the file descriptor of its seccomp listener.
const reportFD = 3

// Main is called by TestMain. In a process that [Run] made it does the work that
// Run names, and ends; in any other it runs the tests.
func Main(m *testing.M, works map[string]func(dir string) error) {
	name := os.Getenv(workEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	err := fmt.Errorf("unknown work %q", name)
	if work := works[name]; work != nil {
		if err = beWatched(); err == nil {
			err = work(os.Getenv(dirEnv))
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beWatched installs a seccomp filter: the kernel reports each change by this process, and by
// the processes that it starts, before the change happens.
func beWatched() error {
	prog := program()
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	const how = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC |
		unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, how, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("have system calls reported: %w", errno)
	}
	report := os.NewFile(reportFD, "report")
	if _, err := fmt.Fprintln(report, fd); err != nil {
		return err
	}
	return report.Close()
}

// Offsets of the fields of struct seccomp_data.
const (
	atNumber = 0
	atArch   = 4
	atArgs   = 16
)

// program is the filter: notify for what changes something, allow the rest.
func program() []unix.SockFilter {
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	load := func(at uint32) unix.SockFilter { return stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at) }
	// unless skips the next n instructions if the comparison fails.
	unless := func(op uint16, k uint32, n int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jf: uint8(n), K: k}
	}
	allow := stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW)
	notify := stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_USER_NOTIF)

	prog := []unix.SockFilter{load(atArch), {
		Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		Jt:   1,
		K:    arch,
	}, allow, load(atNumber)}
	for _, list := range []map[uintptr]string{calls, oldCalls} {
		for nr := range list {
			prog = append(prog, unless(unix.BPF_JEQ, uint32(nr), 1), notify)
		}
	}
	for _, list := range []map[uintptr]uint32{opens, oldOpens} {
		for nr, arg := range list {
			prog = append(prog, unless(unix.BPF_JEQ, uint32(nr), 4), load(atArgs+8*arg),
				unless(unix.BPF_JSET, unix.O_CREAT|unix.O_TRUNC, 1), notify, allow)
		}
	}
	prog = append(prog, unless(unix.BPF_JEQ, unix.SYS_IOCTL, 2*len(loops)+2), load(atArgs+8))
	for _, what := range loops {
		prog = append(prog, unless(unix.BPF_JEQ, what, 1), notify)
	}
	return append(prog, allow, allow)
}
