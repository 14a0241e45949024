// Package rules keeps the map of the source true. Its tests read the import
// graph of the module with one `go list` and fail, with a sentence that says
// what to do, when a package has no package comment, when an import does not
// go down the layers of docs/architecture.md, or when the product draws in a
// library that it has promised to do without. Others read the source: a goroutine
// that does not contain panics fails, and so do inconsistent claims of parity rows.
package rules
