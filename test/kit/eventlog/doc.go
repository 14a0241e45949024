// Package eventlog records the events that the agent reports about pods, about the node and about other objects.
// A test reads them as lines: "web/main Warning Failed Error: no such file" is about a container, "web Warning ..."
// about its pod, and "node Warning ..." about the node.
package eventlog
