package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootedAt is when the machine was started; the zero time if it cannot be read.
func BootedAt() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}
