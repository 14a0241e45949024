// Package logind is a D-Bus message bus of a test's own, with the part of systemd-logind
// that a shutdown of the machine uses: inhibitor locks that delay it, PrepareForShutdown,
// InhibitDelayMaxUSec, and the reload of the configuration.
//
//	bus := logind.StartBus(t)           // DBUS_SYSTEM_BUS_ADDRESS=bus.Address
//	m := logind.Start(t, bus, time.Minute)
//	m.Await(t, 1)                       // a client holds a lock
//	m.Announce(t, true)                 // the machine is about to shut down
//	m.Await(t, 0)                       // no client holds a lock
//
// The bus is a real dbus-daemon. The machine's own bus and its logind are never
// contacted.
package logind
