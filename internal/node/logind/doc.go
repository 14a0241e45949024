// Package logind speaks to systemd's login manager over the system's message bus,
// as somebody who has something to do before the machine shuts down: it holds a
// lock that delays the shutdown, hears when one begins or is called off, and asks
// how long the delay may be.
//
// A [Session] is one connection. It ends with the bus, or when it is closed; then
// its announcements end, its lock is let go, and whoever wants more dials again.
// There is no state beyond that, and no goroutine that outlives Close.
//
// The address of the bus is the system's, or what DBUS_SYSTEM_BUS_ADDRESS says.
package logind
