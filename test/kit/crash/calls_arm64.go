package crash

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// This machine has no calls of an older kind.
var (
	oldCalls = map[uintptr]string{}
	oldOpens = map[uintptr]uint32{}
)
