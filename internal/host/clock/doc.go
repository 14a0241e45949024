// Package clock has helpers for time: sleeping with a context, and comparisons of times.
//
// A zero [time.Time] stands for none.
package clock
