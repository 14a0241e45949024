// Package crisuite says what a CRI runtime does, as far as a kubelet relies on
// it, in the form of one test suite that the fake runtime and real ones pass:
// states after each call, idempotence of stop and remove, errors for what is
// unknown or in the wrong state, filters, exit codes, logs, events.
//
// The suite knows nothing of how the runtime is started. It cleans up the
// sandboxes it makes.
package crisuite
