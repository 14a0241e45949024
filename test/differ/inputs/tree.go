package inputs

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// spot is one place in a document: a value, its holder, and the type that the API
// has there; nil where it has none.
type spot struct {
	path   string
	name   string // of the field, or of the field of the list or map it is in
	typ    reflect.Type
	holder any // map[string]any or *list
	key    string
	index  int
}

// list is a JSON array that can be extended in place.
type list struct{ items []any }

// grow replaces arrays by lists, so that elements can be added in place.
func grow(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = grow(v[k])
		}
		return v
	case []any:
		l := &list{items: v}
		for i := range v {
			l.items[i] = grow(v[i])
		}
		return l
	}
	return v
}

// MarshalJSON writes the array.
func (l *list) MarshalJSON() ([]byte, error) {
	if l.items == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(l.items)
}

func (s spot) get() any {
	switch h := s.holder.(type) {
	case map[string]any:
		return h[s.key]
	case *list:
		if s.index < len(h.items) {
			return h.items[s.index]
		}
	}
	return nil
}

func (s spot) set(v any) {
	switch h := s.holder.(type) {
	case map[string]any:
		h[s.key] = v
	case *list:
		if s.index < len(h.items) {
			h.items[s.index] = v
		}
	}
}

func (s spot) remove() {
	switch h := s.holder.(type) {
	case map[string]any:
		delete(h, s.key)
	case *list:
		if s.index < len(h.items) {
			h.items = slices.Delete(h.items, s.index, s.index+1)
		}
	}
}

// spots lists every place of a document, in an order that does not change.
func spots(doc map[string]any, t reflect.Type) []spot {
	var out []spot
	walk(doc, t, "", "", &out)
	return out
}

func walk(v any, t reflect.Type, path, name string, out *[]spot) {
	t = deref(t)
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			child, childName := childType(t, k), k
			if t != nil && t.Kind() == reflect.Map {
				childName = name
			}
			s := spot{
				path:   path + "." + k,
				name:   childName,
				typ:    child,
				holder: v,
				key:    k,
			}
			*out = append(*out, s)
			walk(v[k], child, s.path, childName, out)
		}
	case *list:
		var elem reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			elem = t.Elem()
		}
		for i := range v.items {
			s := spot{
				path:   path + "[" + strconv.Itoa(i) + "]",
				name:   name,
				typ:    elem,
				holder: v,
				index:  i,
			}
			*out = append(*out, s)
			walk(v.items[i], elem, s.path, name, out)
		}
	}
}

func deref(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// childType is the type of a field, or of the values of a map.
func childType(t reflect.Type, key string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Map:
		return deref(t.Elem())
	case t.Kind() == reflect.Struct && !isLeaf(t):
		return fieldsOf(t)[key]
	}
	return nil
}

// fieldsOf are the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			maps.Copy(out, fieldsOf(deref(f.Type)))
		case name != "":
			out[name] = deref(f.Type)
		}
	}
	return out
}

// isLeaf reports whether a struct is one value in JSON.
func isLeaf(t reflect.Type) bool {
	_, own := reflect.PointerTo(t).MethodByName("UnmarshalJSON")
	return own
}
