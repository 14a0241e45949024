// Package plugin finds programs that offer something to the node through sockets
// in the registration directory: CSI drivers, DRA drivers, device plugins. It owns
// which sockets there are and which of them have been registered; what a plugin is
// good for its handler knows.
//
//	(none) ──► seen ──► registering ──► registered
//	   ▲         ▲          │ fails          │
//	   │         └─ back-off┘                │ socket gone or made anew
//	   └──────────── deregistered ◄──────────┘
//
// Every socket has a goroutine of its own, so a plugin that hangs keeps nobody
// waiting. One that comes back under the same name waits until the one before it is
// deregistered. Nothing is polled: the directory tells of sockets that come and go.
// Where it cannot, it is read now and then.
//
// Lock order: Watcher.mu is taken alone and not held over a call.
package plugin
