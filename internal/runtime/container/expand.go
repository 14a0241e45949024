package container

import (
	"errors"
	"fmt"

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
// in commands, a name without a value is an error: a volume must not be mounted
// at a path that nobody meant.
func Expander(env []pod.EnvVar) func(string) (string, error) {
	lookup := lookupIn(env)
	return func(s string) (string, error) {
		var missing []error
		out := pod.Expand(s, func(name string) (string, bool) {
			v, ok := lookup(name)
			if !ok {
				missing = append(missing, fmt.Errorf("missing value for %q", name))
			}
			return v, ok
		})
		if err := errors.Join(missing...); err != nil {
			return "", err
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
