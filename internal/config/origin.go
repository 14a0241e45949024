package config

import "strings"

// Origins are the origins of values by field: "flag --max-pods", or the path of a file.
// Keys are field paths such as authentication.webhook.enabled; a missing field has its
// default.
type Origins map[string]string

// Of returns the origin of a field, or of the nearest enclosing field that has one. It is
// empty for a default.
func (o Origins) Of(field string) string {
	for at := field; at != ""; {
		if from, ok := o[at]; ok {
			return from
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			return ""
		}
		at = at[:i]
	}
	return ""
}

// note records every field that doc sets as coming from origin. Lists count as
// one value, as they do when drop-ins are merged.
func (o Origins) note(doc map[string]any, prefix, origin string) {
	for k, v := range doc {
		if child, ok := v.(map[string]any); ok && len(child) > 0 {
			o.note(child, prefix+k+".", origin)
			continue
		}
		o[prefix+k] = origin
	}
}
