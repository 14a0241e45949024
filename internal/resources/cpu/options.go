package cpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Options are those of the static policy.
type Options struct {
	FullCores   bool // whole cores only: nobody else's threads beside one's own
	AcrossNUMA  bool // spread evenly over the NUMA nodes that are needed
	BySocket    bool // what is on one socket is together
	AcrossCores bool // one thread of each core before a second one
	Strict      bool // the reserved CPUs are nobody's, not even shared
	ByCache     bool // as few last caches as can be, where that is to be had
}

// Stages are the gates that options of a lower stage want.
type Stages struct{ Beta, Alpha bool }

// ParseOptions reads the options of the configuration.
func ParseOptions(policy string, given map[string]string, on Stages) (Options, error) {
	var o Options
	if policy != PolicyStatic {
		if len(given) > 0 {
			//lint:ignore ST1005 upstream's words
			return o, fmt.Errorf("None policy: received unsupported options=%v", given)
		}
		return o, nil
	}
	known := map[string]struct {
		to    *bool
		stage string
		on    bool
	}{
		optionFullCores: {&o.FullCores, "", true}, optionStrict: {&o.Strict, "", true}, optionByCache: {&o.ByCache, "", true},
		optionAcrossNUMA: {&o.AcrossNUMA, "Beta", on.Beta},
		optionBySocket:   {&o.BySocket, "Alpha", on.Alpha}, optionAcrossCores: {&o.AcrossCores, "Alpha", on.Alpha},
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		option, ok := known[name]
		if !ok {
			return o, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		}
		if !option.on {
			return o, fmt.Errorf("CPU Manager Policy %s-level Options not enabled, but option %q provided", option.stage, name)
		}
		var err error
		if *option.to, err = strconv.ParseBool(given[name]); err != nil {
			return o, fmt.Errorf("bad value for option %q: %w", name, err)
		}
	}
	return o, o.check()
}

// check refuses options that contradict each other.
func (o Options) check() error {
	clash := func(a, b string) error {
		return fmt.Errorf("static policy options %s and %s can not be used at the same time", a, b)
	}
	switch {
	case o.FullCores && o.AcrossCores:
		return clash(optionFullCores, optionAcrossCores)
	case o.ByCache && o.AcrossCores:
		return clash(optionByCache, optionAcrossCores)
	case o.ByCache && o.AcrossNUMA:
		return clash(optionByCache, optionAcrossNUMA)
	case o.AcrossNUMA && o.AcrossCores:
		return clash(optionAcrossNUMA, optionAcrossCores)
	}
	return nil
}

// fits refuses options that the machine, or the topology policy, cannot live with.
func (o Options) fits(l *layout, singleNode bool) error {
	switch {
	case !o.BySocket:
		return nil
	case singleNode:
		//lint:ignore ST1005 upstream's words
		return fmt.Errorf("Topolgy manager single-numa-node policy is incompatible with CPUManager %s policy option", optionBySocket)
	case len(l.ids(socket)) > len(l.ids(node)):
		//lint:ignore ST1005 upstream's words
		return errors.New("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA")
	}
	return nil
}
