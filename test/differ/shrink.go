package differ

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// again runs the lives of differences again, and separates the groups that show again from the
// others.
func (s *Stage) again(ctx context.Context, groups []*Group) (steady, unsteady []*Group, err error) {
	by := map[string][]*Group{} // by interludes, which all lives of a history share
	for _, g := range groups {
		k := strings.Join(g.First.Between, ",")
		by[k] = append(by[k], g)
	}
	for _, k := range slices.Sorted(maps.Keys(by)) {
		h := &History{Between: by[k][0].First.Between}
		for _, g := range by[k] {
			if name := s.nextName(); len(h.Lives) < s.atATime() {
				h.Lives = append(h.Lives, g.First.Life.copy(name))
			}
		}
		found, err := s.signatures(ctx, h)
		if err != nil {
			return nil, nil, err
		}
		for _, g := range by[k] {
			if slices.ContainsFunc(h.Lives, func(l *Life) bool { return found[l.Name][g.Signature] }) {
				steady = append(steady, g)
			} else {
				unsteady = append(unsteady, g)
			}
		}
	}
	return steady, unsteady, nil
}

// signatures runs a history and returns the signatures of its differences by life.
func (s *Stage) signatures(ctx context.Context, h *History) (map[string]map[string]bool, error) {
	played, err := s.Play(ctx, h)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]bool{}
	for _, d := range played.Differences {
		if out[d.Life.Name] == nil {
			out[d.Life.Name] = map[string]bool{}
		}
		out[d.Life.Name][d.Signature] = true
	}
	return out, nil
}

// nextName names a life that is run again.
func (s *Stage) nextName() string {
	s.named++
	return fmt.Sprintf("again-%d", s.named)
}

// Bounds of shrinking: the number of rounds, the number of attempts at once for a group, and the time.
const (
	shrinkRounds   = 5
	shrinkAttempts = 24
	shrinkBound    = 10 * time.Minute
	shrinkPatience = 25 * time.Second // a shrunk life may never come to rest
)

// shrink removes parts of the lives of differences that are not needed for the difference to
// show. The first attempts remove large parts, later ones small parts.
func (s *Stage) shrink(ctx context.Context, groups []*Group) error {
	if !s.cfg.Real {
		s.patience = shrinkPatience
		defer func() { s.patience = restBound }()
	}
	tried := map[*Group]map[string]bool{}
	end := time.Now().Add(shrinkBound)
	for range shrinkRounds {
		if time.Now().After(end) {
			return nil
		}
		open := map[string][]*Group{}
		for _, g := range groups {
			k := strings.Join(g.First.Between, ",")
			open[k] = append(open[k], g)
		}
		any := false
		for _, k := range slices.Sorted(maps.Keys(open)) {
			for chunk := range slices.Chunk(open[k], max(1, 4*s.atATime()/shrinkAttempts/3)) {
				did, err := s.shrinkRound(ctx, chunk, tried)
				if err != nil {
					return err
				}
				any = any || did
			}
		}
		if !any {
			return nil
		}
	}
	return nil
}

// shrinkRound makes one round of attempts for groups whose histories have the same interludes.
func (s *Stage) shrinkRound(
	ctx context.Context, groups []*Group, tried map[*Group]map[string]bool,
) (did bool, err error) {
	h := &History{Between: groups[0].First.Between}
	attempts := map[*Group]map[string]cut{} // by name of the life
	for _, g := range groups {
		if tried[g] == nil {
			tried[g] = map[string]bool{}
		}
		attempts[g] = map[string]cut{}
		for _, c := range cuts(g.First.Life) {
			if tried[g][c.what] || len(attempts[g]) == shrinkAttempts {
				continue
			}
			tried[g][c.what] = true
			l := g.First.Life.copy(s.nextName())
			if l = c.apply(l); l != nil {
				attempts[g][l.Name] = c
				h.Lives = append(h.Lives, l)
			}
		}
	}
	if len(h.Lives) == 0 {
		return false, nil
	}
	shown, err := s.signatures(ctx, h)
	if err != nil {
		return false, err
	}
	// Parts that could be left out one by one are left out together, if the difference still shows.
	together := &History{Between: h.Between}
	whole := map[*Group]*Life{}
	for _, g := range groups {
		l := g.First.Life.copy(s.nextName())
		n := 0
		for _, name := range slices.Sorted(maps.Keys(attempts[g])) {
			if !shown[name][g.Signature] {
				continue
			}
			did = true
			if smaller := attempts[g][name].apply(l); smaller != nil {
				l = smaller
				n++
			}
		}
		switch {
		case n > 1:
			whole[g] = l
			together.Lives = append(together.Lives, l)
		case n == 1:
			g.First.Life = l
		}
	}
	if len(together.Lives) == 0 {
		return did, nil
	}
	found, err := s.signatures(ctx, together)
	if err != nil {
		return false, err
	}
	for g, l := range whole {
		if found[l.Name][g.Signature] {
			g.First.Life = l
			continue
		}
		i := slices.IndexFunc(h.Lives, func(l *Life) bool { return mine(attempts[g], l) && shown[l.Name][g.Signature] })
		g.First.Life = h.Lives[i] // one of them, then
	}
	return did, nil
}

func mine(attempts map[string]cut, l *Life) bool {
	_, ok := attempts[l.Name]
	return ok
}

// cut is a part of a life that may be left out: a path in its JSON.
type cut struct {
	what string
	path []any // keys and indexes
}

// apply leaves the part out. It returns nil if there is no such part or the rest is not a valid life.
func (c cut) apply(l *Life) *Life {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // all its fields can be encoded
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		panic(err)
	}
	if !without(tree, c.path) {
		return nil
	}
	if data, err = json.Marshal(prune(tree)); err != nil {
		panic(err)
	}
	out := &Life{}
	if json.Unmarshal(data, out) != nil || len(out.Pod.Spec.Containers) == 0 || len(out.Acts) == 0 {
		return nil
	}
	return out
}

// gone marks elements that were left out of a list, so that the indexes of others stay.
const gone = "\x00gone"

// without marks or removes the part at a path, and reports whether there is one.
func without(node any, path []any) bool {
	for i, at := range path {
		last := i == len(path)-1
		switch n := node.(type) {
		case map[string]any:
			k, ok := at.(string)
			if !ok || n[k] == nil {
				return false
			}
			if last {
				delete(n, k)
				return true
			}
			node = n[k]
		case []any:
			k, ok := at.(int)
			if !ok || k >= len(n) {
				return false
			}
			if last {
				n[k] = gone
				return true
			}
			node = n[k]
		default:
			return false
		}
	}
	return false
}

func prune(node any) any {
	switch n := node.(type) {
	case map[string]any:
		for k, v := range n {
			n[k] = prune(v)
		}
	case []any:
		n = slices.DeleteFunc(n, func(v any) bool { return v == gone })
		for i, v := range n {
			n[i] = prune(v)
		}
		return n
	}
	return node
}

// cuts are the parts that may be left out of a life, large ones first. Paths of lists are by
// index from the end, so that leaving out one leaves the paths of those before as they are.
func cuts(l *Life) (list []cut) {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		panic(err)
	}
	type node struct {
		path []any
		v    any
	}
	queue := []node{{[]any{"Acts"}, tree["Acts"]}, {[]any{"Faults"}, tree["Faults"]},
		{[]any{"Objects"}, tree["Objects"]},
		{[]any{"Programs"}, tree["Programs"]}, {[]any{"Pod"}, tree["Pod"]}}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		child := func(at any, v any) {
			path := append(slices.Clone(n.path), at)
			if len(path) > 9 {
				return
			}
			text, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			// Nothing comes back when it is left out.
			if !needed(path) && string(text) != "{}" {
				// The text of the part distinguishes it from another part that has moved to its
				// path after an earlier cut.
				list = append(list, cut{fmt.Sprint(path) + strings.ReplaceAll(string(text), l.Name, ""), path})
			}
			queue = append(queue, node{path, v})
		}
		switch v := n.v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				child(k, v[k])
			}
		case []any:
			for i := len(v) - 1; i >= 0; i-- {
				child(i, v[i])
			}
		}
	}
	return list
}

// needed reports whether a life is not valid without the part.
func needed(path []any) bool {
	text := fmt.Sprint(path)
	switch {
	case path[0] == "Acts":
		_, index := path[len(path)-1].(int)
		return len(path) == 2 || len(path) == 4 && text == "[Acts 0 Steps 0]" || len(path) > 4 || !index
	case path[0] == "Faults", path[0] == "Objects", path[0] == "Programs":
		return len(path) != 2
	}
	key := path[len(path)-1]
	return len(path) == 2 || text == "[Pod metadata name]" || text == "[Pod spec containers]" || key == "name" ||
		key == "image" && len(path) <= 5
}
