// Package app builds every part of the agent, joins them, starts them in an
// order with a reason beside each, and stops them in reverse.
//
// It holds no logic of its own beyond the joints: where two parts speak of the
// same thing in different words, an adapter here translates. The parts that live
// as long as the agent are run by a [group]; the first that fails ends all.
package app
