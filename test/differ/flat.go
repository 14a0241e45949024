package differ

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// flat is a tree as its leaves by path. The elements of a list are identified by their name, if
// each has a different one.
type flat map[string]string

// flatten parses JSON.
func flatten(data []byte) (flat, error) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("flatten: %w", err)
	}
	out := flat{}
	out.add("", v)
	return out, nil
}

func (f flat) add(path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			f[path] = "{}"
		}
		for k, e := range v {
			f.add(strings.TrimPrefix(path+"."+k, "."), e)
		}
	case []any:
		if len(v) == 0 {
			f[path] = "[]"
		}
		key := keyOf(v)
		for i, e := range v {
			at := fmt.Sprint(i)
			if key != "" {
				at = fmt.Sprint(e.(map[string]any)[key])
			}
			f.add(path+"["+at+"]", e)
		}
	default:
		f[path] = fmt.Sprint(v)
	}
}

// keyOf is the field by which the elements of a list are distinguished, or nothing.
func keyOf(list []any) string {
	for _, key := range []string{"name", "type", "key", "containerPath", "uid", "ip"} {
		values := map[string]bool{}
		for _, e := range list {
			m, ok := e.(map[string]any)
			if !ok {
				break
			}
			if name, ok := m[key].(string); ok {
				values[name] = true
			}
		}
		if len(values) == len(list) {
			return key
		}
	}
	return ""
}

// absent is the text for a value that does not exist.
const absent = "(none)"

// unlike are the paths where two trees differ, in order.
func unlike(a, b flat) []string {
	var out []string
	for p, v := range a {
		if w, ok := b[p]; !ok || v != w {
			out = append(out, p)
		}
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func (f flat) at(path string) string {
	if v, ok := f[path]; ok {
		return v
	}
	return absent
}

// String is the tree with a line for each leaf.
func (f flat) String() string {
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "%s = %s\n", p, f[p])
	}
	return b.String()
}
