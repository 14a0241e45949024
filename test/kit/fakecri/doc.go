// Package fakecri is a container runtime that behaves but runs nothing: the
// CRI's RuntimeService and ImageService with the states, idempotence, error
// codes and events that containerd 2.x shows, on a unix socket for any kubelet
// binary or in memory for a test in virtual time.
//
// What it owns: sandboxes, containers and images, all in memory and all behind
// one mutex (Runtime.mu). They outlive connections, so a kubelet may restart
// and the server may be stopped and come back (Disconnect, then Serve).
// What it writes: container logs, in CRI format, where the kubelet asked for
// them, and files that a container's command writes below one of its mounts.
// It neither polls nor sleeps: whatever takes time is a timer.
//
// Containers do what their command says, as far as the tiny shell of shell.go
// understands it (echo, sleep, exit, trap and a few more), so that one manifest
// runs here and on a real runtime with busybox. Any other command is a server:
// it runs until it is stopped. SIGTERM ends a container with code 143 unless it
// has set a trap.
//
// Tests steer it from outside: Exit and OOMKill end a container, Inject makes
// calls slow, failing or hanging, BreakEvents and the Unimplemented switches
// take features away, Calls and Usage tell what was asked and how long it took.
package fakecri
