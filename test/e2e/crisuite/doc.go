// Package crisuite runs the suite of test/kit/crisuite on real runtimes, so
// that the fake runtime keeps behaving like them.
package crisuite
