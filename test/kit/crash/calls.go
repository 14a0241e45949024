package crash

import (
	"fmt"
	"maps"

	"golang.org/x/sys/unix"
)

// calls are the system calls that change something and that all architectures have. write is not
// among them: a file is also created, synced or renamed, and these calls are.
var calls = map[uintptr]string{
	unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount", unix.SYS_MOVE_MOUNT: "move_mount",
	unix.SYS_MKDIRAT: "mkdir", unix.SYS_UNLINKAT: "unlink", unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename",
	unix.SYS_SYMLINKAT: "symlink", unix.SYS_LINKAT: "link", unix.SYS_MKNODAT: "mknod",
	unix.SYS_FCHMOD: "chmod", unix.SYS_FCHMODAT: "chmod", unix.SYS_FCHMODAT2: "chmod", unix.SYS_FCHOWN: "chown",
	unix.SYS_FCHOWNAT: "chown",
	unix.SYS_TRUNCATE: "truncate", unix.SYS_FTRUNCATE: "truncate", unix.SYS_FSYNC: "fsync",
	unix.SYS_EXECVE: "exec", unix.SYS_EXIT_GROUP: "exit",
}

// opens are the calls that can create or truncate a file, with the index of the argument that has the flags.
var opens = map[uintptr]uint32{unix.SYS_OPENAT: 2}

// loops are the ioctl requests that attach and detach loop devices.
var loops = []uint32{unix.LOOP_SET_FD, unix.LOOP_CLR_FD, unix.LOOP_CONFIGURE}

// nameOf names a call.
func nameOf(nr uintptr) string {
	all := maps.Clone(calls)
	maps.Copy(all, oldCalls)
	if name, ok := all[nr]; ok {
		return name
	}
	if _, ok := opens[nr]; ok || oldOpens[nr] > 0 {
		return "create"
	}
	if nr == unix.SYS_IOCTL {
		return "loop device"
	}
	return fmt.Sprintf("call %d", nr)
}
