package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Policy options.
const (
	optionClosest = "prefer-closest-numa-nodes"
	optionNodes   = "max-allowable-numa-nodes"
)

// defaultMaxNodes is the default, and minimum, of max-allowable-numa-nodes. Each additional node doubles the number of
// sets.
const defaultMaxNodes = 8

// Options are the policy options.
type Options struct {
	PreferClosest bool // prefer the set of nodes with the smallest distance among those of one size
	MaxNodes      int  // maximum number of NUMA nodes of the machine
}

// ParseOptions parses the policy options of the configuration.
func ParseOptions(given map[string]string) (Options, error) {
	o := Options{MaxNodes: defaultMaxNodes}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		var err error
		switch name {
		case optionClosest:
			o.PreferClosest, err = strconv.ParseBool(given[name])
		case optionNodes:
			if o.MaxNodes, err = strconv.Atoi(given[name]); err != nil {
				return o, fmt.Errorf("unable to convert policy option to integer %q: %w", name, err)
			}
		default:
			return o, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
		switch {
		case err != nil:
			return o, fmt.Errorf("bad value for option %q: %w", name, err)
		case o.MaxNodes < defaultMaxNodes:
			return o, fmt.Errorf("the minimum value of %q should not be less than %d", optionNodes, defaultMaxNodes)
		}
	}
	return o, nil
}
