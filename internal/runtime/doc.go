// Package runtime is the room of the container runtime. cri is its client, container creates and
// stops sandboxes and containers, image pulls and garbage-collects images, logs reads container
// logs, and rotate rotates them.
//
// It has no code of its own.
package runtime
