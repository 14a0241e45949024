// Package faults keeps the faults in force that a fake or a proxy lets calls meet: which calls match one, how many
// of these pass before it and how many meet it, and which calls it holds. What a fault does to a call is up to the
// package that has the calls.
package faults
