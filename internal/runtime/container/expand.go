package container

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// lookupIn returns a lookup function over resolved variables. The last value of a name wins.
func lookupIn(env []pod.EnvVar) func(string) (string, bool) {
	m := make(map[string]string, len(env))
	for _, e := range env {
		m[e.Name] = e.Value
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// Expander expands $(NAME) in the subPathExpr of volume mounts. Unlike in commands, an undefined or
// empty variable is an error: a volume must not be mounted at an unintended path.
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

// commandLine returns the container's command and arguments with variables expanded.
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
