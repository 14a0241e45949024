package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// States of the service.
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
	alive    = daemon.SdNotifyWatchdog
)

// minWatchdog is the longest watchdog timeout that is rejected: it would leave too little time for the health checks.
const minWatchdog = time.Second

// Notifier sends a state to the service manager that started the process; nil if none did.
func Notifier() func(state string) (bool, error) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	return func(state string) (bool, error) { return daemon.SdNotify(false, state) }
}

// Reloading returns the state of a service that reads its configuration again, with the monotonic time, which the
// service manager requires.
func Reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return daemon.SdNotifyReloading
	}
	return daemon.SdNotifyReloading + "\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10)
}

// Service notifies the service manager that started the agent.
type Service struct {
	notify func(state string) (bool, error)
	log    *slog.Logger
}

// New makes a Service. Without notify there is no service manager.
func New(notify func(state string) (bool, error), log *slog.Logger) *Service {
	return &Service{notify: notify, log: log}
}

// Managed reports whether there is a service manager.
func (s *Service) Managed() bool { return s.notify != nil }

// Notify sends a state. A failure is logged.
func (s *Service) Notify(state string) {
	if s.notify == nil {
		return
	}
	if _, err := s.notify(state); err != nil {
		s.log.Warn("failed to notify service manager", "state", strings.SplitN(state, "\n", 2)[0], "err", err)
	}
}

// WatchdogTimeout returns the watchdog timeout of the unit; zero if it has no watchdog.
func WatchdogTimeout() (time.Duration, error) {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, fmt.Errorf("read the service manager's watchdog: %w", err)
	}
	if d > 0 && d <= minWatchdog {
		return 0, fmt.Errorf("use the service manager's watchdog: WatchdogSec is %v, and must be more than %v", d,
			minWatchdog)
	}
	return d, nil
}

// Watchdog notifies the watchdog twice in each timeout, as long as failing, which lists the health checks that fail,
// returns nothing. After a timeout without a notification the service manager restarts the agent, so that a part
// that hangs works again. Pods keep running.
func (s *Service) Watchdog(ctx context.Context, timeout time.Duration, failing func() string) error {
	tick := time.NewTicker(timeout / 2)
	defer tick.Stop()
	before := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := failing()
		if now != "" && now != before {
			s.log.Error("health checks fail, the watchdog is not notified", "checks", now, "timeout", timeout)
		}
		if before = now; before == "" {
			s.Notify(alive)
		}
	}
}
