package differ

import (
	"regexp"
	"slices"
	"strings"
)

// Difference is one difference between both sides.
type Difference struct {
	Kind         string // pod, seen, event, call, order, request, file, step or end
	At           string // the step or interlude at which it showed
	Where        string // path or subject
	Ours, Theirs string
	Signature    string
	Life         *Life
	Seed         uint64   // of the history
	Between      []string // its interludes
	scene        *scene   // the state of both sides, for rules
}

// scene is the state of both sides at a difference.
type scene struct {
	looks    [2]flat
	shown    [2]bool           // whether the pod was ever in the API server
	reported [2][]string       // events
	ended    [2]bool           // without having been deleted
	refused  [2]bool           // ended with a reason
	asked    [2][]string       // calls to the runtime
	spoke    [2]map[string]int // number of events by type and reason; "" for all
	changed  []string          // containers whose image changed while upstream's agent stopped them
}

// has reports whether a call that begins with this text was made on a side.
func (sc *scene) has(side int, call string) bool {
	return slices.ContainsFunc(sc.asked[side], func(c string) bool { return strings.HasPrefix(c, call) })
}

// failed reports whether such a call was made and failed.
func (sc *scene) failed(side int, call string) bool {
	return slices.ContainsFunc(sc.asked[side], func(c string) bool {
		return strings.HasPrefix(c, call) && strings.HasSuffix(c, " fails")
	})
}

// leftAfterFailure reports whether the creation of an attempt of a container failed and only our side started it later.
func (sc *scene) leftAfterFailure(container string) bool {
	return slices.ContainsFunc(sc.asked[1], func(c string) bool {
		attempt, failed := strings.CutSuffix(c, " fails")
		attempt, created := strings.CutPrefix(attempt, "CreateContainer "+container+"#")
		start := "StartContainer " + container + "#" + attempt
		return failed && created && sc.has(0, start) && !sc.has(1, start)
	})
}

// ranAgain reports whether the pod has had more than one sandbox on a side.
func (sc *scene) ranAgain(side int) bool {
	return slices.ContainsFunc(sc.asked[side], func(c string) bool {
		return strings.HasPrefix(c, "RunPodSandbox#") && !strings.HasPrefix(c, "RunPodSandbox#0")
	})
}

// waitsForVolumes reports whether volumes could not be mounted and no container runs yet on either side. Upstream's
// agent does not sync the pod while it waits for its volumes.
func (sc *scene) waitsForVolumes() bool {
	failed := slices.ContainsFunc(sc.reported[1],
		func(e string) bool { return strings.HasPrefix(e, "Warning FailedMount: ") })
	return failed && !sc.has(0, "CreateContainer ") && !sc.has(1, "CreateContainer ")
}

// nothingAsked reports whether neither side has called the runtime for the pod.
func (sc *scene) nothingAsked() bool { return len(sc.asked[0])+len(sc.asked[1]) == 0 }

// ended reports whether the pod has ended on both sides.
func (d Difference) ended() bool { return d.scene.ended[0] && d.scene.ended[1] }

// rejected reports whether the pod is rejected. Upstream has no mirror pod for a static pod that it rejects.
func (d Difference) rejected() bool {
	return d.scene.refused[0] && (d.scene.refused[1] || d.Life.Static) && d.scene.nothingAsked()
}

// restarted reports whether the agent is restarted in the course of the history.
func (d Difference) restarted() bool {
	return slices.Contains(d.Between, restartAgent) || slices.Contains(d.Between, killAgent)
}

func newDifference(l *Life, kind, at, where, ours, theirs string) Difference {
	d := Difference{Kind: kind, At: at, Where: where, Ours: ours, Theirs: theirs, Life: l}
	d.Signature = kind + " | " + general(l, inList.ReplaceAllString(where, "[*]")) + " | " + general(l, ours) + " | " +
		general(l, theirs)
	return d
}

// moment is when a difference showed: at a rest or a step, or when the life was over.
func (d Difference) moment() string {
	switch d.Kind {
	case "seen", "event", "call", "order", "request":
		return "in the end"
	}
	return d.At
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

// Groups groups differences by signature, the most frequent group first.
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
