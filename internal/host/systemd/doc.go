// Package systemd notifies the service manager of the state of the agent (sd_notify): ready, reloading or
// stopping. If the unit has a watchdog, it is notified while the agent is healthy.
//
// [Service] has no state and no lock. Without a service manager it does nothing.
package systemd
