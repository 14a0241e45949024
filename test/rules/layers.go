package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the import path of this module.
const Module = "keelson"

// A Layer is one row of the import table. Imports go from a higher layer to a
// lower one.
type Layer int

// The layers, from the lowest to the highest.
const (
	Floor     Layer = iota + 1 // vocabulary and pure decisions
	Adapter                    // talks to other programs and the kernel
	Subsystem                  // owns a part of the state, performs one task
	Driver                     // decides when the subsystems act
	Config                     // flags, configuration file, gates
	ConfigUse                  // compares the configuration with the machine, applies changes of the configuration
	App                        // builds all parts and connects them
	Command                    // the binary
)

func (l Layer) String() string {
	return [...]string{"?", "floor", "adapter", "subsystem", "driver", "config", "config use", "app", "command"}[l]
}

// layers is the import table and the list of all product packages. A package below one of these
// (internal/storage/volume/csi) belongs to the layer of its parent. It is listed only if its layer differs.
var layers = map[string]Layer{
	"cmd/kubelet":     Command,
	"internal/app":    App,
	"internal/config": Config,

	"internal/config/preflight": ConfigUse,
	"internal/config/reload":    ConfigUse,
	"internal/config/settings":  ConfigUse,

	"internal/api/node":           Driver,
	"internal/host/shutdown":      Driver,
	"internal/pods/podsync":       Driver,
	"internal/resources/eviction": Driver,
	"internal/serve/podresources": Driver,
	"internal/serve/podsapi":      Driver,
	"internal/serve/server":       Driver,

	"internal/api/identity":       Subsystem,
	"internal/api/objectcache":    Subsystem,
	"internal/pods/admission":     Subsystem,
	"internal/pods/allocation":    Subsystem,
	"internal/pods/desired":       Subsystem,
	"internal/pods/observed":      Subsystem,
	"internal/pods/probe":         Subsystem,
	"internal/pods/status":        Subsystem,
	"internal/resources/cpu":      Subsystem,
	"internal/resources/device":   Subsystem,
	"internal/resources/dra":      Subsystem,
	"internal/resources/memory":   Subsystem,
	"internal/resources/stats":    Subsystem,
	"internal/resources/topology": Subsystem,
	"internal/resources/userns":   Subsystem,
	"internal/runtime/container":  Subsystem,
	"internal/runtime/image":      Subsystem,
	"internal/runtime/rotate":     Subsystem,
	"internal/storage/volume":     Subsystem,

	"internal/api/client":      Adapter,
	"internal/api/watch":       Adapter,
	"internal/host/cgroup":     Adapter,
	"internal/host/footprint":  Adapter,
	"internal/host/logind":     Adapter,
	"internal/host/netfilter":  Adapter,
	"internal/host/oom":        Adapter,
	"internal/host/plugin":     Adapter,
	"internal/host/setup":      Adapter,
	"internal/host/systemd":    Adapter,
	"internal/runtime/cri":     Adapter,
	"internal/runtime/logs":    Adapter,
	"internal/serve/socket":    Adapter,
	"internal/serve/tracing":   Adapter,
	"internal/storage/mount":   Adapter,
	"internal/storage/selinux": Adapter,

	"internal/host/clock":                  Floor,
	"internal/host/checkpoint":             Floor,
	"internal/host/machine":                Floor,
	"internal/pods/explain":                Floor,
	"internal/pods/manifest":               Floor,
	"internal/pods/panics":                 Floor,
	"internal/pods/pod":                    Floor,
	"internal/pods/podplan":                Floor,
	"internal/pods/reconcile":              Floor,
	"internal/pods/timeline":               Floor,
	"internal/resources/device/checkpoint": Floor,
	"internal/resources/numa":              Floor,
}

// rooms are directories that group packages. The doc.go of each describes its packages. Rooms have no code: they import
// no product package, and no package imports them.
var rooms = []string{
	"internal/pods", "internal/runtime", "internal/storage", "internal/resources",
	"internal/host", "internal/api", "internal/serve",
}

// emptyNames are package names that do not describe a purpose.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "types", "base", "misc"}

// Layers checks every product package against the table and returns one message per violation.
func Layers(pkgs []Package) []string {
	var out []string
	for _, p := range pkgs {
		rel, ok := productPath(p.ImportPath)
		if !ok {
			continue
		}
		if slices.Contains(emptyNames, path.Base(rel)) {
			out = append(out,
				fmt.Sprintf("%s: the name says nothing; put its functions beside the noun they serve", rel))
		}
		from, parent, known := layerOf(rel)
		if !known && !slices.Contains(rooms, rel) {
			out = append(out,
				fmt.Sprintf(
					"%s is not in the import table: decide its layer, then add it to `layers` in test/rules/layers.go and to the table in docs/architecture.md", rel))
			continue
		}
		for _, imp := range p.Imports {
			to, ok := productPath(imp)
			if !ok {
				if strings.HasPrefix(imp, Module+"/test/") || strings.HasPrefix(imp, Module+"/tools/") {
					out = append(out,
						fmt.Sprintf("%s imports %s: the product does not import its tests and tools", rel, imp))
				}
				continue
			}
			if why := forbidden(rel, from, parent, to); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", rel, to, why))
			}
		}
	}
	slices.Sort(out)
	return out
}

// forbidden returns why a package may not import another one, or "" if it may.
func forbidden(rel string, from Layer, fromRoot string, to string) string {
	below, toRoot, known := layerOf(to)
	switch {
	case slices.Contains(rooms, to):
		return "a room holds no code"
	case slices.Contains(rooms, rel):
		return "a room imports nothing"
	case !known:
		return "" // reported once, as the package that is not in the table
	case fromRoot == toRoot:
		if strings.HasPrefix(rel, to+"/") || from == Floor {
			return ""
		}
		return "a child imports its parent, never the reverse or a sibling; app hands children in"
	case below == Config && from < Config:
		return "only cmd and app import config, with what is below it; declare a small Config of your own and let app fill it"
	case from == Config && below != Floor:
		return "config reads and checks; it imports nothing but the floor"
	case below < from:
		return ""
	case from == Floor && below == Floor:
		return ""
	case below == from:
		return fmt.Sprintf(
			"one %s does not import another; receive the value, or declare an interface of what is needed and let app join them", from)
	default:
		return fmt.Sprintf("imports go down only, and %s is below %s", from, below)
	}
}

// layerOf finds the layer of a package or of its nearest listed parent.
func layerOf(rel string) (l Layer, root string, known bool) {
	for at := rel; at != "."; at = path.Dir(at) {
		if l, ok := layers[at]; ok {
			return l, at, true
		}
	}
	return 0, "", false
}

// productPath cuts keelson/internal/x to internal/x; ok is false for anything
// that is not part of the product.
func productPath(importPath string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(importPath, Module+"/")
	if !ok {
		return "", false
	}
	top, _, _ := strings.Cut(rel, "/")
	return rel, top == "internal" || top == "cmd"
}
