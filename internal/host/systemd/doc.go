// Package systemd tells the service manager how the agent is: that it is ready, reloads or stops, and that it is
// alive, if the unit has a watchdog (sd_notify).
//
// [Service] has no state and no lock. Without a service manager it does nothing.
package systemd
