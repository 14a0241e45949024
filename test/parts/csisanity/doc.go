// Package csisanity runs the CSI project's own suite against the test driver. It
// is a module of its own, so that the product's does not name the suite.
package csisanity
