// Package settings converts the configuration to the Config types of other packages. Each function returns such a
// Config, or one value of it. Only the fields that depend on the configuration are set; app sets the others. The
// functions are pure.
//
// Only app imports it.
package settings
