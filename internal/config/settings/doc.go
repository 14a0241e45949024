// Package settings translates the configuration to the terms of the parts: each function returns the Config of a part,
// or one value of it, with what the configuration says, and without the other parts, which app joins. The functions are
// pure.
//
// Only app imports it.
package settings
