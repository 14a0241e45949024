// Package logind calls systemd-logind over D-Bus. It takes an inhibitor lock that delays a shutdown of the machine,
// receives announcements of shutdowns and cancellations, and reads the maximum delay.
//
// A [Session] is one connection. When the connection is lost, or Close is called, its announcements end. There is no
// other state, and no goroutine after Close.
//
// The address of the bus is the default one or that in DBUS_SYSTEM_BUS_ADDRESS.
package logind
