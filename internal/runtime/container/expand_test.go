package container

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

var someEnv = []pod.EnvVar{
	{Name: "A", Value: "1"},
	{Name: "A", Value: "2"},
	{Name: "EMPTY"},
	{Name: "REF", Value: "$(A)"},
}

func TestExpand(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-84")
	for _, tc := range []struct{ name, in, want string }{
		{"a reference is replaced, by the last value of the name", "x$(A)y", "x2y"},
		{"values are not expanded again", "$(REF)", "$(A)"},
		{"an empty value is a value", "[$(EMPTY)]", "[]"},
		{"an undefined variable is kept", "$(NO)-$(A)", "$(NO)-2"},
		{"two dollars are one, and no reference", "$$(A)", "$(A)"},
		{"three dollars are one and a reference", "$$$(A)", "$2"},
		{"shell syntax is kept", "$A ${A}", "$A ${A}"},
		{"an incomplete reference is kept", "$(A", "$(A"},
		{"an incomplete reference before an escaped dollar", "$(A $$", "$(A $"},
		{"a dollar at the end is kept", "5$", "5$"},
		{"a reference inside one is part of its name", "$($(A))", "$($(A))"},
		{"letters of more than a byte pass", "ä$ü$(A)ö", "ä$ü2ö"},
		{"nothing to do", "plain", "plain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := pod.Expand(tc.in, lookupIn(someEnv)); got != tc.want {
				t.Errorf("Expand(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestExpanderUndefinedVariable(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-84")
	expand := Expander(someEnv)
	if got, err := expand("logs/$(A)"); got != "logs/2" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := expand("$(NOR)/$(A)/$(NO)/$(EMPTY)/$(NO)"); err == nil ||
		err.Error() != "missing value for EMPTY, NO, NOR" {
		t.Errorf("got %q, %v; want an error that names EMPTY, NO and NOR", got, err)
	}
}

func TestCommandLine(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-84")
	command, args := commandLine(&v1.Container{Command: []string{"run$(A)"}, Args: []string{"$(A)", "$(NO)"}}, someEnv)
	if strings.Join(command, " ") != "run2" || strings.Join(args, " ") != "2 $(NO)" {
		t.Errorf("got %q %q", command, args)
	}
}

// FuzzExpand compares the one-pass function with another formulation: what is neither a complete
// reference nor a pair of dollars is unchanged.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$(", "$", "$$", "a$(NO)b", "$(A$(A))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := pod.Expand(s, func(string) (string, bool) { return "", false })
		if want := collapseDollars(s); got != want {
			t.Errorf("Expand(%q) = %q without variables, want %q", s, got, want)
		}
	})
}

// collapseDollars replaces two dollars by one, outside of references.
func collapseDollars(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		out = append(out, s[i])
		if s[i] != '$' || i+1 == len(s) {
			continue
		}
		switch s[i+1] {
		case '$':
			i++
		case '(':
			if end := strings.IndexByte(s[i:], ')'); end > 0 {
				out = append(out, s[i+1:i+end+1]...)
				i += end
			}
		}
	}
	return string(out)
}
