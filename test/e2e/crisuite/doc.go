// Package crisuite runs the suite of test/kit/crisuite on real runtimes, so
// that what the fake runtime does stays what real ones do.
package crisuite
