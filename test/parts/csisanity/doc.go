// Package csisanity runs the conformance suite of the CSI project against the test driver. It is a module of its own,
// so that the product's go.mod does not name the suite.
package csisanity
