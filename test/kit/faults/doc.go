// Package faults keeps the faults that a fake or a proxy applies to calls: which calls match a fault, how many of
// these pass first, how many meet the fault then, and which calls it holds. The package that has the calls defines
// what a fault does to a call.
package faults
