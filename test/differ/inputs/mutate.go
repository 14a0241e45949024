package inputs

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// document is a document of a type, with mutations applied to it.
type document struct {
	root map[string]any
	typ  reflect.Type
	did  []string
}

// parse reads a valid document of the test data. It panics if the document cannot be read.
func parse(text []byte, t reflect.Type) *document {
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(fmt.Sprintf("inputs: read a document of our own: %v", err))
	}
	return &document{
		root: grow(root).(map[string]any),
		typ:  t,
	}
}

// mutate changes one thing.
func (d *document) mutate(v *values) {
	all := spots(d.root, d.typ)
	if len(all) == 0 {
		return
	}
	s := pick(v.rng, all)
	note := func(format string, args ...any) {
		d.did = append(d.did, s.path+": "+fmt.Sprintf(format, args...))
	}
	t := deref(s.typ)
	if t != nil && t.Kind() == reflect.Struct && !isLeaf(t) && v.rng.IntN(4) != 0 {
		if m, ok := s.get().(map[string]any); ok {
			d.setField(v, m, t, note)
			return
		}
	}
	switch n := v.rng.IntN(24); {
	case n < 3:
		s.remove()
		note("removed")
	case n == 3:
		s.set(nil)
		note("null")
	case n == 4:
		was := s.get()
		now := pick(v.rng,
			[]any{"x", int64(7), true, 1.5, map[string]any{}, &list{}, map[string]any{"a": "b"},
				&list{items: []any{"a"}}})
		s.set(now)
		note("%s for %s", show(now), show(was))
	case n == 5:
		if m, ok := s.holder.(map[string]any); ok {
			key := pick(v.rng,
				[]string{strings.ToUpper(s.key), s.key + "s", "unknown", " " + s.key,
					strings.ToUpper(s.key[:min(1, len(s.key))]) + s.key[min(1, len(s.key)):]})
			m[key] = s.get()
			delete(m, s.key)
			note("renamed to %q", key)
		}
	case n < 9:
		if l, ok := s.holder.(*list); ok {
			l.items = append(l.items, clone(s.get()))
			note("repeated")
			return
		}
		if l, ok := s.get().(*list); ok && t != nil && t.Kind() == reflect.Slice {
			item := v.of(t.Elem(), s.name, 1)
			l.items = append(l.items, item)
			note("and %s", show(item))
			return
		}
		if m, ok := s.get().(map[string]any); ok && t != nil && t.Kind() == reflect.Map {
			key, value := v.key(s.name), v.of(t.Elem(), s.name, 1)
			m[key] = value
			note("%q is %s", key, show(value))
			return
		}
		fallthrough
	default:
		was, now := s.get(), v.of(t, s.name, 1)
		s.set(now)
		note("%s for %s", show(now), show(was))
	}
}

// setField sets a field of a struct, mostly one that is not set yet.
func (d *document) setField(v *values, m map[string]any, t reflect.Type, note func(string, ...any)) {
	fields := fieldsOf(t)
	names := slices.Sorted(maps.Keys(fields))
	if len(names) == 0 {
		return
	}
	name := pick(v.rng, names)
	for range 3 {
		if _, set := m[name]; !set {
			break
		}
		name = pick(v.rng, names)
	}
	value := v.of(fields[name], name, 1)
	m[name] = value
	note("%s is %s", name, show(value))
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = clone(v[k])
		}
		return out
	case *list:
		out := &list{}
		for _, item := range v.items {
			out.items = append(out.items, clone(item))
		}
		return out
	}
	return v
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 200 {
		return string(b[:200]) + "..."
	}
	return string(b)
}

// text writes the document, as YAML or as JSON.
func (d *document) text(asJSON bool) []byte {
	b, err := json.Marshal(d.root)
	if err != nil {
		panic(fmt.Sprintf("inputs: write a document of our own: %v", err))
	}
	if asJSON {
		return b
	}
	y, err := yaml.JSONToYAML(b)
	if err != nil {
		panic(fmt.Sprintf("inputs: write a document of our own: %v", err))
	}
	return y
}

// scratch changes the text of a document, for example it drops a byte or a line.
func scratch(rng *rand.Rand, text []byte) ([]byte, string) {
	s := string(text)
	lines := strings.SplitAfter(s, "\n")
	at := rng.IntN(len(s))
	line := rng.IntN(len(lines))
	switch rng.IntN(12) {
	case 0:
		return []byte(s[:at]), fmt.Sprintf("cut at byte %d", at)
	case 1:
		return []byte(s[:at] + s[at+1:]), fmt.Sprintf("byte %d dropped", at)
	case 2:
		return []byte(s[:at] + string(pick(rng, []rune("{}[]:,-#&*!|>'\"%@`\t \n\x00é"))) +
			s[at:]), fmt.Sprintf("odd character at byte %d", at)
	case 3:
		return []byte(strings.Join(slices.Insert(slices.Clone(lines), line, lines[line]),
			"")), fmt.Sprintf("line %d twice", line)
	case 4:
		return []byte(strings.Join(slices.Delete(slices.Clone(lines), line, line+1),
			"")), fmt.Sprintf("line %d dropped", line)
	case 5:
		return []byte("---\n" + s), "document mark before"
	case 6:
		return []byte(s + "\n---\n" + pick(rng, []string{"", "a: b\n", "# nothing\n", s, "]["})), "second document"
	case 7:
		return []byte("\ufeff" + s), "byte order mark"
	case 8:
		return []byte("# comment\n\n" + s + "\n...\n"), "comment before and end mark after"
	case 9:
		return []byte(strings.ReplaceAll(s, "\n", "\r\n")), "carriage returns"
	case 10:
		return []byte(pick(rng,
			[]string{"", " ", "\n", "{}", "[]", "null", "---", "--- \n---\n" + s, "apiVersion: v1", "x", "\x00",
				"%YAML 1.2\n---\n" + s})), "other text"
	}
	return []byte(strings.Replace(s, ": ", ":", 1)), "space dropped"
}
