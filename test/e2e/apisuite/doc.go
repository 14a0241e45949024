// Package apisuite runs the suite of test/kit/apisuite on the real API server, so that the fake one
// keeps behaving like it.
package apisuite
