// Package rules checks that the source has the structure that the documents describe. Its tests read the import graph
// of the module with one `go list`. They fail if a room or package has no doc.go, if an import does not go down the
// layers of docs/architecture.md, or if the product imports an excluded library. The message states what to do. Other
// tests read the source. They refuse goroutines that do not contain panics, inconsistent claims of parity rows,
// literary words for which the field has a term (words.go), paths in documents that do not exist, types with too many
// fields (sizes.go), and long lines (lines.go).
package rules
