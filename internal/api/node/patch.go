package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// diff returns the strategic merge patch from one node object to the other, without the spec. It is empty without
// changes. Lists of the metadata are not modified by the agent.
func diff(from, to *v1.Node) ([]byte, error) {
	a, err := asMaps(from)
	if err != nil {
		return nil, fmt.Errorf("compare node %s: %w", from.Name, err)
	}
	b, err := asMaps(to)
	if err != nil {
		return nil, fmt.Errorf("compare node %s: %w", from.Name, err)
	}
	doc := map[string]any{}
	if meta := differences(a["metadata"], b["metadata"]); len(meta) > 0 {
		doc["metadata"] = meta
	}
	// These two lists are merged by type.
	was, is := a["status"], b["status"]
	conditions, order := conditionDifferences(was["conditions"], is["conditions"])
	for _, list := range []string{"conditions", "addresses"} {
		delete(was, list)
		delete(is, list)
	}
	status := differences(was, is)
	if len(conditions) > 0 {
		status["conditions"], status["$setElementOrder/conditions"] = conditions, order
	}
	if !equality.Semantic.DeepEqual(from.Status.Addresses, to.Status.Addresses) {
		// A merge would lose one of two addresses of the same type.
		list := []any{map[string]string{"$patch": "replace"}}
		for _, a := range to.Status.Addresses {
			list = append(list, a)
		}
		status["addresses"] = list
	}
	if len(status) > 0 {
		doc["status"] = status
	}
	if len(doc) == 0 {
		return nil, nil
	}
	return json.Marshal(doc)
}

// asMaps returns the JSON representation of the node.
func asMaps(n *v1.Node) (map[string]map[string]any, error) {
	text, err := json.Marshal(struct {
		Metadata any `json:"metadata"`
		Status   any `json:"status"`
	}{n.ObjectMeta, n.Status})
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var m map[string]map[string]any
	return m, d.Decode(&m)
}

// differences returns the fields of b that differ from a. Fields that b does not have are null.
func differences(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for name, is := range b {
		was, there := a[name]
		if there && reflect.DeepEqual(was, is) {
			continue
		}
		before, ok1 := was.(map[string]any)
		after, ok2 := is.(map[string]any)
		if ok1 && ok2 {
			is = differences(before, after)
		}
		out[name] = is
	}
	for name := range a {
		if _, stays := b[name]; !stays {
			out[name] = nil
		}
	}
	return out
}

// conditionDifferences returns the conditions that were added, changed or removed, and the types of all conditions in
// their order.
func conditionDifferences(was, is any) (changed, order []any) {
	order = []any{} // not null
	before := map[any]map[string]any{}
	for _, c := range conditionMaps(was) {
		before[c["type"]] = c
	}
	for _, c := range conditionMaps(is) {
		kind := c["type"]
		order = append(order, map[string]any{"type": kind})
		old, there := before[kind]
		delete(before, kind)
		if d := differences(old, c); len(d) > 0 || !there {
			d["type"] = kind
			changed = append(changed, d)
		}
	}
	for _, c := range conditionMaps(was) {
		if _, gone := before[c["type"]]; gone {
			changed = append(changed, map[string]any{"type": c["type"], "$patch": "delete"})
		}
	}
	return changed, order
}

// conditionMaps returns the elements of a list of asMaps.
func conditionMaps(list any) []map[string]any {
	var out []map[string]any
	all, _ := list.([]any) // nil: no conditions
	for _, c := range all {
		if m, ok := c.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}
