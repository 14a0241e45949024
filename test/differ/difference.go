package differ

import (
	"regexp"
	"slices"
)

// Difference is one thing that is not the same on both sides.
type Difference struct {
	Kind         string // pod, said, event, call, order, request, file, step or end
	At           string // when
	Where        string // path or subject
	Ours, Theirs string
	Signature    string
	Life         *Life
	Seed         uint64   // of the history
	Between      []string // its interludes
	ended        bool     // the pod had, on both sides
}

func newDifference(l *Life, kind, at, where, ours, theirs string) Difference {
	d := Difference{Kind: kind, At: at, Where: where, Ours: ours, Theirs: theirs, Life: l}
	d.Signature = kind + " | " + general(l, inList.ReplaceAllString(where, "[*]")) + " | " + general(l, ours) + " | " + general(l, theirs)
	return d
}

// inList is the name of an element of a list.
var inList = regexp.MustCompile(`\[[^\]]*\]`)

// Group is the differences of one signature.
type Group struct {
	Signature string
	Count     int
	Lives     []string
	First     Difference
}

// Groups puts differences of one signature together, the most frequent first.
func Groups(list []Difference) []*Group {
	by := map[string]*Group{}
	var out []*Group
	for _, d := range list {
		g := by[d.Signature]
		if g == nil {
			g = &Group{Signature: d.Signature, First: d}
			by[d.Signature] = g
			out = append(out, g)
		}
		g.Count++
		if !slices.Contains(g.Lives, d.Life.Name) {
			g.Lives = append(g.Lives, d.Life.Name)
		}
	}
	slices.SortStableFunc(out, func(a, b *Group) int { return len(b.Lives) - len(a.Lives) })
	return out
}
