// Package crisuite is a test suite for the behaviour of a CRI runtime that a kubelet relies
// on. The fake runtime and real ones pass it. It covers states after each call, idempotence
// of stop and remove, errors for what is unknown or in the wrong state, filters, exit codes,
// logs and events.
//
// The suite does not depend on how the runtime is started. It cleans up the
// sandboxes it makes.
package crisuite
