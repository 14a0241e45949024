// Package app builds every part of the agent, connects them, starts them in a fixed order with the reason beside each,
// and stops them in reverse order.
//
// The parts are built in layers, one file each: ground, runtime, apiserver, node, resources, storage, pods, pressure,
// serving. The constructor of a layer takes the layers above it, and returns a struct of its parts; no layer uses one
// that is built later. A part reports to one that is built later through a notifier, which is built first ([workers],
// [conditions], [mounts]) and connected once, before any part runs.
//
// It holds no logic of its own. Where two parts have different types for the same thing, a small adapter converts. The
// parts that run as long as the agent are run by a [group]; the first that fails stops all.
package app
