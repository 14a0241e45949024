// Package logind is a message bus of a test's own and, on it, the little of
// systemd's login manager that a shutdown of the machine goes through: locks that
// delay it, the announcement, the longest delay, and the reload of the settings.
//
//	bus := logind.StartBus(t)           // DBUS_SYSTEM_BUS_ADDRESS=bus.Address
//	m := logind.Start(t, bus, time.Minute)
//	m.Await(t, 1)                       // a client holds a lock
//	m.Announce(t, true)                 // the machine is about to shut down
//	m.Await(t, 0)                       // everybody has let go
//
// The bus is a real dbus-daemon. The machine's own bus and its login manager are
// never spoken to.
package logind
