package inputs

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Difference is an input for which the two kubelets differ.
type Difference struct {
	Seed    uint64
	Number  int
	Input   string   // the text, or the command line and the files
	Did     []string // the changes of a valid input
	Ours    string   // our error, "" when we accept it
	Theirs  string
	Changed []string // what differs in what both accept, as path: ours | theirs
}

func (d *Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, input %d: %s\n", d.Seed, d.Number, strings.Join(d.Did, "; "))
	switch {
	case d.Ours == "" && d.Theirs != "":
		fmt.Fprintf(&b, "  accepted here, upstream says: %s\n", d.Theirs)
	case d.Ours != "" && d.Theirs == "":
		fmt.Fprintf(&b, "  accepted by upstream, here: %s\n", d.Ours)
	}
	for _, c := range d.Changed {
		fmt.Fprintf(&b, "  %s\n", c)
	}
	return b.String()
}

// compare lists what differs between two JSON documents, without the fields
// named by their paths.
func compare(ours, theirs []byte, without ...string) []string {
	var a, b any
	if err := json.Unmarshal(ours, &a); err != nil {
		return []string{"ours cannot be read: " + err.Error()}
	}
	if err := json.Unmarshal(theirs, &b); err != nil {
		return []string{"theirs cannot be read: " + err.Error()}
	}
	for _, path := range without {
		drop(a, path)
		drop(b, path)
	}
	var out []string
	differ(a, b, "", &out)
	return out
}

func differ(a, b any, path string, out *[]string) {
	if reflect.DeepEqual(a, b) {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			keys := maps.Clone(x)
			maps.Copy(keys, y)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				differ(x[k], y[k], path+"."+k, out)
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				differ(x[i], y[i], fmt.Sprintf("%s[%d]", path, i), out)
			}
			return
		}
	}
	*out = append(*out, fmt.Sprintf("%s: ours %s, upstream's %s", path, show(a), show(b)))
}

func drop(doc any, path string) {
	m, ok := doc.(map[string]any)
	if !ok {
		return
	}
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		delete(m, name)
		return
	}
	drop(m[name], rest)
}
