package rotate

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
)

// refuseNoReplace has the kernel reject RENAME_NOREPLACE on this thread, like some file systems.
// The thread ends with the test.
func refuseNoReplace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	const arg4 = 16 + 4*8 // of seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	unless := func(is, skip uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: is, Jf: uint8(skip)}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	filter := []unix.SockFilter{
		load(0), unless(unix.SYS_RENAMEAT2, 3),
		load(arg4), unless(unix.RENAME_NOREPLACE, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)),
		0, 0); err != nil {
		need.Skip(t, "this kernel has no seccomp filters", err)
	}
}

func TestRotateWithoutRenameNoReplace(t *testing.T) {
	refuseNoReplace(t)
	r := newRig(t)
	r.runtime.write(t, "1234567890")
	if err := unix.Renameat2(unix.AT_FDCWD, r.log.Path, unix.AT_FDCWD, r.log.Path+".x",
		unix.RENAME_NOREPLACE); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("rename = %v, want that it is refused", err)
	}
	if err := r.rotate(t.Context(), r.log); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "", "0.log.20260102-030405": "1234567890"})

	r.runtime.write(t, "abcdefghij")
	r.runtime.fail = errors.New("container is not running")
	if err := r.rotate(t.Context(), r.log); !errors.Is(err, r.runtime.fail) {
		t.Errorf("rotate = %v, want why it was undone", err)
	}
	d, err := open(r.cfg.Root, r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.renameNoReplace("0.log", "0.log.20260102-030405"); !errors.Is(err, os.ErrExist) {
		t.Errorf("move to a name that is taken = %v", err)
	}
	wantFiles(t, r.files(t), map[string]string{"0.log": "abcdefghij", "0.log.20260102-030405": "1234567890"})
}
