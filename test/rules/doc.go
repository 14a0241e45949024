// Package rules keeps the map of the source true. Its tests read the import
// graph of the module with one `go list` and fail, with a sentence that says
// what to do, when a room or package has no doc.go, when an import does not
// go down the layers of docs/architecture.md, or when the product imports a
// library that is excluded. Others read the source: a goroutine that does not
// contain panics fails, and so do inconsistent claims of parity rows, words that
// are literary where the trade has a term (words.go), paths in documents that
// do not exist, types with too many fields (sizes.go), and long lines (lines.go).
package rules
