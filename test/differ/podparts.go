package differ

import (
	"regexp"
	"slices"
	"strings"
)

// partUnlike is a part of a pod that is not the same on both sides.
type partUnlike struct{ where, ours, theirs string }

// podsUnlike are the parts in which two pods differ. A part is a state, a condition, a whole
// container status if the other side has none, the whole pod if it is gone on one side, or else
// a single field.
func podsUnlike(ours, theirs flat) []partUnlike {
	if len(ours) == 0 != (len(theirs) == 0) {
		there := [2]string{"there", "gone"}
		if len(ours) == 0 {
			there = [2]string{"gone", "there"}
		}
		return []partUnlike{{"pod", there[0], there[1]}}
	}
	var out []partUnlike
	for _, path := range unlike(ours, theirs) {
		part := partOf(path, ours, theirs)
		if !slices.ContainsFunc(out, func(d partUnlike) bool { return d.where == part }) {
			out = append(out, partUnlike{part, ours.below(part), theirs.below(part)})
		}
	}
	return out
}

var (
	containerPart = regexp.MustCompile(`^(status\.(?:initC|c|ephemeralC)ontainerStatuses\[[^\]]+\])\.([a-zA-Z]+)`)
	conditionPart = regexp.MustCompile(`^(status\.conditions\[[^\]]+\])\.`)
)

func partOf(path string, ours, theirs flat) string {
	if m := containerPart.FindStringSubmatch(path); m != nil {
		if _, here := ours[m[1]+".name"]; !here {
			return m[1]
		}
		if _, there := theirs[m[1]+".name"]; !there {
			return m[1]
		}
		return m[1] + "." + m[2]
	}
	if m := conditionPart.FindStringSubmatch(path); m != nil && !strings.HasSuffix(path, ".observedGeneration") {
		return m[1]
	}
	return path
}

// below is the content of a tree at a path and below it, in one line.
func (f flat) below(path string) string {
	if v, ok := f[path]; ok {
		return v
	}
	var list []string
	for p, v := range f {
		rest, ok := strings.CutPrefix(p, path)
		if ok && (rest[0] == '.' || rest[0] == '[') && !strings.HasSuffix(rest, ".observedGeneration") {
			list = append(list, strings.TrimPrefix(rest, ".")+"="+v)
		}
	}
	if len(list) == 0 {
		return absent
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}
