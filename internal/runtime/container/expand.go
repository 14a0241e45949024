package container

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// expand replaces $(NAME) in s by what lookup knows. $$ stands for one dollar
// sign, so that $$(NAME) comes out as $(NAME). A name that lookup does not know
// and anything that is not a complete reference stay as they are.
func expand(s string, lookup func(string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		rest := s[i+1:]
		switch rest[0] {
		case '$':
			b.WriteByte('$')
			s = rest[1:]
			continue
		case '(':
			if end := strings.IndexByte(rest, ')'); end > 0 {
				if v, ok := lookup(rest[1:end]); ok {
					b.WriteString(v)
				} else {
					b.WriteString(s[i : i+2+end])
				}
				s = rest[end+1:]
				continue
			}
		}
		b.WriteString(s[i : i+2])
		s = rest[1:]
	}
}

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
		out := expand(s, func(name string) (string, bool) {
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
		command = append(command, expand(s, lookup))
	}
	for _, s := range c.Args {
		args = append(args, expand(s, lookup))
	}
	return command, args
}
