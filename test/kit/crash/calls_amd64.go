package crash

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

// oldCalls are older calls with the same effects that this architecture has too. Programs in C use them.
var oldCalls = map[uintptr]string{
	unix.SYS_MKDIR: "mkdir", unix.SYS_RMDIR: "unlink", unix.SYS_UNLINK: "unlink", unix.SYS_RENAME: "rename",
	unix.SYS_SYMLINK: "symlink",
	unix.SYS_LINK:    "link", unix.SYS_MKNOD: "mknod", unix.SYS_CHMOD: "chmod", unix.SYS_CHOWN: "chown",
	unix.SYS_LCHOWN: "chown",
	unix.SYS_CREAT:  "create",
}

var oldOpens = map[uintptr]uint32{unix.SYS_OPEN: 1}
