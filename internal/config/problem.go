package config

import (
	"fmt"
	"strings"
)

// Problem is one error in the configuration.
type Problem struct {
	Origin string // file or flag; empty when the value is a default
	Field  string
	Value  any
	Why    string // the allowed values
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Origin != "" {
		b.WriteString(p.Origin + ": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	switch v := p.Value.(type) {
	case nil:
	case string:
		fmt.Fprintf(&b, "%q ", v)
	default:
		fmt.Fprintf(&b, "%v ", v)
	}
	b.WriteString(p.Why)
	return b.String()
}

// Problems are all errors in the configuration.
type Problems []Problem

func (ps Problems) Error() string {
	if len(ps) == 1 {
		return "invalid configuration: " + ps[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "invalid configuration, %d problems:", len(ps))
	for _, p := range ps {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}
