// Package config reads what the operator wants: command-line flags, the
// configuration file, its drop-ins, and the defaults of everything else.
//
// [Load] answers with one [Config]: the effective KubeletConfiguration, the
// settings that exist only as flags, the feature gates, and for each value that
// is not a default where it came from. Every problem of the input is found in
// one pass and named with its file, field, value and what would be allowed.
//
// The order of precedence is: defaults, configuration file, drop-ins in the
// order of their paths, flags. Two sets of defaults exist: without a
// configuration file four historical ones apply, which leave the node open.
//
// It holds no state. Only cmd and app import it; every other part is handed a
// small Config of its own.
package config
