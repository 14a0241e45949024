package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Stage is the maturity of a gate's feature.
type Stage string

// The stages, as in the metric kubernetes_feature_enabled.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = ""
	Deprecated Stage = "DEPRECATED"
)

// Gate is one feature gate and its setting.
type Gate struct {
	Name    string
	Stage   Stage
	Default bool
	Locked  bool // cannot be changed
	Enabled bool
}

// Gates are all known gates by name.
type Gates map[string]Gate

type gateRow struct {
	stage      Stage
	on, locked bool
	names      string
}

// Enabled reports whether a gate is on. It panics if the gate does not exist.
func (g Gates) Enabled(name string) bool {
	gate, ok := g[name]
	if !ok {
		panic("config: no gate named " + name)
	}
	return gate.Enabled
}

// Sorted lists the gates by name.
func (g Gates) Sorted() []Gate {
	var out []Gate
	for _, name := range slices.Sorted(maps.Keys(g)) {
		out = append(out, g[name])
	}
	return out
}

// meta gates set every gate of a stage that is not set by name.
var meta = []Gate{{Name: "AllAlpha", Stage: Alpha}, {Name: "AllBeta", Stage: Beta}}

// KnownGates are all gates with their defaults.
func KnownGates() Gates {
	g := Gates{}
	for _, row := range gateTable {
		for _, name := range strings.Fields(row.names) {
			g[name] = Gate{Name: name, Stage: row.stage, Default: row.on, Locked: row.locked, Enabled: row.on}
		}
	}
	for _, m := range meta {
		g[m.Name] = m
	}
	return g
}

// newGates applies settings to the table of gates.
func newGates(set map[string]bool) (Gates, Problems) {
	g := KnownGates()
	var ps Problems
	for _, m := range meta {
		on, ok := set[m.Name]
		if !ok {
			continue
		}
		for name, gate := range g {
			if gate.Stage == m.Stage && !gate.Locked {
				gate.Enabled = on
				g[name] = gate
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		gate, ok := g[name]
		switch {
		case !ok:
			ps = append(ps, Problem{Field: "featureGates." + name, Why: "unrecognized feature gate: " + name})
			continue
		case gate.Locked && set[name] != gate.Default:
			ps = append(ps, Problem{
				Field: "featureGates." + name,
				Why: fmt.Sprintf("cannot set feature gate %s to %v, feature is locked to %v", name, set[name],
					gate.Default),
			})
			continue
		}
		gate.Enabled = set[name]
		g[name] = gate
	}
	return g, append(ps, g.unmet()...)
}

// unmet finds gates that are on while gates that they depend on are off.
func (g Gates) unmet() (ps Problems) {
	for line := range strings.Lines(gateNeeds) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || !g.Enabled(name) {
			continue
		}
		off := slices.DeleteFunc(strings.Fields(rest), g.Enabled)
		if len(off) > 0 {
			ps = append(ps, Problem{
				Field: "featureGates." + name,
				Why:   fmt.Sprintf("%s is enabled, but depends on features that are disabled: %v", name, off),
			})
		}
	}
	return ps
}

// helpLines returns the gates for --help.
func (g Gates) helpLines() []string {
	var out []string
	for _, gate := range g.Sorted() {
		if gate.Stage != Alpha && gate.Stage != Beta {
			continue
		}
		out = append(out, fmt.Sprintf("%s=true|false (%s - default=%v)", gate.Name, gate.Stage, gate.Default))
	}
	return out
}
