package crash

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// This architecture has no older calls with the same effects.
var (
	oldCalls = map[uintptr]string{}
	oldOpens = map[uintptr]uint32{}
)
