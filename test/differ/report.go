package differ

import (
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// Report prints the differences, grouped, with the pod of the first life of each group.
func Report(out io.Writer, groups []*Group) error {
	for i, g := range groups {
		d := g.First
		fmt.Fprintf(out, "\n=== %d. %s\n%d times, in %d lives: %s\n", i+1, g.Signature, g.Count, len(g.Lives),
			strings.Join(g.Lives[:min(len(g.Lives), 12)], " "))
		fmt.Fprintf(out, "%s %s, %s\n  ours:   %s\n  theirs: %s\n", d.Kind, d.Where, d.At, d.Ours, d.Theirs)
		if err := d.Life.print(out, d.Between); err != nil {
			return err
		}
	}
	return nil
}

// print prints all parts of a life.
func (l *Life) print(out io.Writer, between []string) error {
	pod, err := yaml.Marshal(map[string]any{"metadata": l.Pod.ObjectMeta, "spec": l.Pod.Spec})
	if err != nil {
		return fmt.Errorf("print life: %w", err)
	}
	kind := ""
	if l.Static {
		kind = "static "
	}
	fmt.Fprintf(out, "  %slife %s:\n", kind, l.Name)
	for _, line := range strings.Split(strings.TrimSpace(string(pod)), "\n") {
		if !strings.Contains(line, "creationTimestamp: null") {
			fmt.Fprintf(out, "    %s\n", line)
		}
	}
	for name, list := range l.Programs {
		fmt.Fprintf(out, "  %s runs %q\n", name, list)
	}
	for _, o := range l.Objects {
		fmt.Fprintf(out, "  object %+v\n", o)
	}
	for _, f := range l.Faults {
		fmt.Fprintf(out, "  fault %+v\n", f)
	}
	for i, a := range l.Acts {
		for _, s := range a.Steps {
			fmt.Fprintf(out, "  act %d: %s\n", i+1, s)
		}
		if i < len(between) {
			fmt.Fprintf(out, "  then %s\n", between[i])
		}
		for _, s := range a.Down {
			fmt.Fprintf(out, "    meanwhile %s\n", s)
		}
	}
	return nil
}
