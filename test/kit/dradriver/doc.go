// Package dradriver is a driver of claims of resources (dynamic resource allocation)
// for tests. It speaks the real protocol, notes every call, knows what it has
// prepared, and fails, hangs or dies on request. It can write CDI specifications for
// a runtime to read.
package dradriver
