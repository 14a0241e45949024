// Package app builds every part of the agent, joins them, starts them in an order with a reason beside each, and stops
// them in reverse.
//
// The parts are built in layers, one file each: ground, runtime, apiserver, node, resources, storage, pods, pressure,
// serving. The constructor of a layer takes the layers above it, and returns a struct of its parts; no layer knows one
// that is built later. What a part has to report to one that is built later goes through a notifier that is built
// first ([workers], [conditions], [mounts]) and connected once, before anything runs.
//
// It holds no logic of its own: where two parts have different words for the same thing, a small adapter translates.
// The parts that live as long as the agent are run by a [group]; the first that fails ends all.
package app
