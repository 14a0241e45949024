package cpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Options are the options of the static policy.
type Options struct {
	FullCores   bool // allocate whole cores only, so that a core is never shared between containers
	AcrossNUMA  bool // distribute CPUs evenly over the NUMA nodes that are needed
	BySocket    bool // prefer alignment by socket to alignment by NUMA node
	AcrossCores bool // distribute CPUs over cores before a second thread of a core is used
	Strict      bool // exclude the reserved CPUs from the shared pool, too
	ByCache     bool // use as few last-level caches as possible, if enough CPUs are free
}

// Gates are the feature gates for policy options, each with whether it is enabled.
type Gates struct{ Beta, Alpha bool }

// ParseOptions parses the policy options of the configuration.
func ParseOptions(policy string, given map[string]string, on Gates) (Options, error) {
	var o Options
	if policy != PolicyStatic {
		if len(given) > 0 {
			//lint:ignore ST1005 same text as upstream
			return o, fmt.Errorf("None policy: received unsupported options=%v", given)
		}
		return o, nil
	}
	known := map[string]struct {
		to    *bool
		stage string
		on    bool
	}{
		optionFullCores:   {&o.FullCores, "", true},
		optionStrict:      {&o.Strict, "", true},
		optionByCache:     {&o.ByCache, "", true},
		optionAcrossNUMA:  {&o.AcrossNUMA, "Beta", on.Beta},
		optionBySocket:    {&o.BySocket, "Alpha", on.Alpha},
		optionAcrossCores: {&o.AcrossCores, "Alpha", on.Alpha},
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		option, ok := known[name]
		if !ok {
			return o, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		}
		if !option.on {
			return o, fmt.Errorf("CPU Manager Policy %s-level Options not enabled, but option %q provided",
				option.stage, name)
		}
		var err error
		if *option.to, err = strconv.ParseBool(given[name]); err != nil {
			return o, fmt.Errorf("bad value for option %q: %w", name, err)
		}
	}
	return o, o.check()
}

// check returns an error if the options contradict each other.
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

// validate returns an error if the options are incompatible with the machine or with the topology manager policy.
func (o Options) validate(l *layout, singleNode bool) error {
	switch {
	case !o.BySocket:
		return nil
	case singleNode:
		//lint:ignore ST1005 same text as upstream
		return fmt.Errorf("Topolgy manager single-numa-node policy is incompatible with CPUManager %s policy option",
			optionBySocket)
	case len(l.ids(socket)) > len(l.ids(node)):
		//lint:ignore ST1005 same text as upstream
		return errors.New(
			"Align by socket is not compatible with hardware where number of sockets are more than number " +
				"of NUMA")
	}
	return nil
}
