// Package inventory is the parity inventory as data: the rows of the tables
// beside this file, compiled in so that a test or a command can look them up
// from any directory. The Markdown is the source; this file only reads it.
package inventory

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed *.md
var tables embed.FS

// Subsystems in the order in which they are reported.
var Subsystems = []string{"CFG", "SRC", "LIFE", "RT", "VOL", "PROBE", "NODE", "RES", "EVIC", "SRV", "PLUG"}

// Priorities from most to least important.
var Priorities = []string{"P0", "P1", "P2", "P3"}

// Row is one line of the inventory.
type Row struct {
	ID         string // LIFE-84
	Subsystem  string // LIFE
	Priority   string // P0
	Capability string // the third column: what the row is called
	File       string // 03-pod-lifecycle.md
}

// rowPattern matches the first three cells of a table row that has an ID; a
// bar inside a cell is written \|.
var rowPattern = regexp.MustCompile(`(?m)^\| ([A-Z]+)-([0-9]+) \| (P[0-3]) \| ((?:[^|\\]|\\.)*?) \|`)

// Rows returns every row, in the order of the files.
func Rows() []Row { return slices.Clone(load().rows) }

// Lookup returns the row with this ID.
func Lookup(id string) (Row, bool) {
	r, ok := load().byID[id]
	return r, ok
}

type index struct {
	rows []Row
	byID map[string]Row
}

// load panics on a broken inventory: it is compiled in, so only an edit of
// the tables can break it, and TestInventory reports it first.
var load = sync.OnceValue(func() index {
	ix, err := parse(tables)
	if err != nil {
		panic(err)
	}
	return ix
})

func parse(files fs.FS) (index, error) {
	names, err := fs.Glob(files, "[0-9]*.md")
	if err != nil {
		return index{}, fmt.Errorf("list inventory: %w", err)
	}
	ix := index{byID: map[string]Row{}}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return index{}, fmt.Errorf("read inventory: %w", err)
		}
		for _, m := range rowPattern.FindAllStringSubmatch(string(text), -1) {
			row := Row{ID: m[1] + "-" + m[2], Subsystem: m[1], Priority: m[3],
				Capability: strings.ReplaceAll(m[4], `\|`, `|`), File: name}
			if !slices.Contains(Subsystems, row.Subsystem) {
				return index{}, fmt.Errorf("read inventory: %s: row %s belongs to no known subsystem", name, row.ID)
			}
			if other, ok := ix.byID[row.ID]; ok {
				return index{}, fmt.Errorf("read inventory: row %s stands in %s and in %s", row.ID, other.File, name)
			}
			ix.byID[row.ID] = row
			ix.rows = append(ix.rows, row)
		}
	}
	return ix, nil
}
