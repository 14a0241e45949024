// Package apisuite runs the suite of test/kit/apisuite on the real API server, so that what the
// fake one does stays what it does.
package apisuite
