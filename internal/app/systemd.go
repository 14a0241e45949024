package app

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// What the service manager is told.
const (
	stateReady    = daemon.SdNotifyReady
	stateStopping = daemon.SdNotifyStopping
	stateAlive    = daemon.SdNotifyWatchdog
)

// ServiceManager is the way to the service manager that started the process; nil if
// none did.
func ServiceManager() func(state string) (bool, error) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	return func(state string) (bool, error) { return daemon.SdNotify(false, state) }
}

// reloading announces that the configuration is being read again, at a time by
// the clock that the service manager goes by.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return daemon.SdNotifyReloading
	}
	return daemon.SdNotifyReloading + "\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10)
}

func (a *agent) tellManager(state string) {
	if a.links.Operator.Notify == nil {
		return
	}
	if _, err := a.links.Operator.Notify(state); err != nil {
		a.log.Warn("cannot tell the service manager", "state", strings.SplitN(state, "\n", 2)[0], "err", err)
	}
}

// watchdogTimeout reads how long the service manager waits for a sign of life;
// zero if it does not.
func watchdogTimeout() (time.Duration, error) {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, fmt.Errorf("read the service manager's watchdog: %w", err)
	}
	if d > 0 && d <= minWatchdog {
		return 0, fmt.Errorf("use the service manager's watchdog: WatchdogSec is %v, and must be more than %v", d, minWatchdog)
	}
	return d, nil
}

// minWatchdog leaves time for the checks.
const minWatchdog = time.Second

// showLife gives a sign of life twice in each timeout, as long as every health
// check passes. Without it, the service manager starts the agent anew, which does
// a part that hangs good and pods no harm.
func (a *agent) showLife(timeout time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(timeout / 2)
		defer tick.Stop()
		ill := ""
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			now := a.ailments()
			if now != "" && now != ill {
				a.log.Error("health checks fail; the service manager is given no sign of life", "checks", now, "timeout", timeout)
			}
			if ill = now; ill == "" {
				a.tellManager(stateAlive)
			}
		}
	}
}

// ailments are the checks that fail, with their causes.
func (a *agent) ailments() string {
	var ill []string
	for _, c := range a.checks() {
		if err := c.Check(); err != nil {
			ill = append(ill, c.Name+": "+err.Error())
		}
	}
	return strings.Join(ill, "; ")
}
