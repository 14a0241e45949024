// Package fakecri is a container runtime that runs no processes. It implements the
// CRI's RuntimeService and ImageService with the states, idempotence, error
// codes and events of containerd 2.x, on a unix socket for any kubelet binary or
// in memory for a test in virtual time.
//
// What it owns: sandboxes, containers and images, all in memory and all behind
// one mutex (Runtime.mu). They outlive connections, so a kubelet may restart
// and the server may be stopped and come back (Disconnect, then Serve).
// What it writes: container logs, in CRI format, at the paths that the kubelet
// has set, and files that a container's command writes below one of its mounts.
// It neither polls nor sleeps: all waiting is done by timers.
//
// Containers execute their command, as far as the small shell of shell.go
// supports it (echo, sleep, exit, trap and a few more), so that one manifest
// runs here and on a real runtime with busybox. Any other command is a server:
// it runs until it is stopped. SIGTERM ends a container with code 143 unless it
// has set a trap.
//
// Tests control it: Exit and OOMKill end a container, Inject makes calls slow,
// failing or hanging, BreakEvents and the options NoEvents, NoRuntimeConfig and
// NoListStreams disable features, Calls and Usage report which calls there were
// and how long they took.
package fakecri
