// Package config loads the configuration: command-line flags, the configuration file, its
// drop-ins, and the defaults.
//
// [Load] returns one [Config]: the effective KubeletConfiguration, the settings that exist
// only as flags, the feature gates, and the origin of each value that is not a default.
// One pass finds every problem of the input and names it with its file, field, value and
// the allowed values.
//
// The order of precedence is: defaults, configuration file, drop-ins in the order of their
// paths, flags. Without a configuration file four defaults differ, as upstream's do, and
// are less secure.
//
// It holds no state. Only cmd and app import it; every other package has a small Config of
// its own.
package config
