package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Names of the options of a policy.
const (
	optionClosest = "prefer-closest-numa-nodes"
	optionNodes   = "max-allowable-numa-nodes"
)

// fewestNodes is what a machine can have at most unless the option says more: with
// each node the sets of them double.
const fewestNodes = 8

// Options are those of a policy.
type Options struct {
	Closest   bool // of several sets of one size, the one whose nodes are closest
	MostNodes int  // that a machine may have
}

// ParseOptions reads the options of the configuration.
func ParseOptions(given map[string]string) (Options, error) {
	o := Options{MostNodes: fewestNodes}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		var err error
		switch name {
		case optionClosest:
			o.Closest, err = strconv.ParseBool(given[name])
		case optionNodes:
			if o.MostNodes, err = strconv.Atoi(given[name]); err != nil {
				return o, fmt.Errorf("unable to convert policy option to integer %q: %w", name, err)
			}
		default:
			return o, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
		switch {
		case err != nil:
			return o, fmt.Errorf("bad value for option %q: %w", name, err)
		case o.MostNodes < fewestNodes:
			return o, fmt.Errorf("the minimum value of %q should not be less than %d", optionNodes, fewestNodes)
		}
	}
	return o, nil
}
