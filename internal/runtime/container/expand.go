package container

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// lookupIn makes a lookup of final variables; the last one of a name counts.
func lookupIn(env []pod.EnvVar) func(string) (string, bool) {
	m := make(map[string]string, len(env))
	for _, e := range env {
		m[e.Name] = e.Value
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// Expander resolves $(NAME) in the subPathExpr of a container's mounts. Unlike
// in commands, a name whose value is missing or empty is an error: a volume must not be mounted
// at a path that the specification does not mean.
func Expander(env []pod.EnvVar) func(string) (string, error) {
	lookup := lookupIn(env)
	return func(s string) (string, error) {
		var missing []string
		out := pod.Expand(s, func(name string) (string, bool) {
			v, ok := lookup(name)
			if v == "" {
				missing = append(missing, name)
			}
			return v, ok
		})
		if len(missing) > 0 {
			slices.Sort(missing)
			return "", fmt.Errorf("missing value for %s", strings.Join(slices.Compact(missing), ", "))
		}
		return out, nil
	}
}

// commandLine is the container's command and arguments with its environment
// filled in.
func commandLine(c *v1.Container, env []pod.EnvVar) (command, args []string) {
	lookup := lookupIn(env)
	for _, s := range c.Command {
		command = append(command, pod.Expand(s, lookup))
	}
	for _, s := range c.Args {
		args = append(args, pod.Expand(s, lookup))
	}
	return command, args
}
