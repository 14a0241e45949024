// Package plugin is the plugin watcher: it discovers plugins (CSI drivers, DRA drivers, device plugins) by their
// sockets in the registration directory, and registers them with the handler of their type. It owns the sockets and
// their registrations.
//
//	(none) ──► seen ──► registering ──► registered
//	   ▲         ▲          │ fails          │
//	   │         └─ back-off┘                │ socket removed or recreated
//	   └──────────── deregistered ◄──────────┘
//
// Sockets are processed separately, so that a plugin that hangs does not block others; none has a goroutine while there
// is nothing to do. A recreated socket is processed after its predecessor was deregistered. The directory is watched
// for events. If that fails, it is read periodically.
//
// Lock order: Watcher.mu is taken alone and not held during a call.
package plugin
