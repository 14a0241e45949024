package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootedAt returns when the machine was booted, or the zero time if that cannot be read.
func BootedAt() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}
