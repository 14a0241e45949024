package pod

import "strings"

// Expand replaces $(NAME) in s by what lookup knows. $$ stands for one dollar
// sign, so that $$(NAME) comes out as $(NAME). A name that lookup does not know
// and anything that is not a complete reference stay as they are.
func Expand(s string, lookup func(string) (string, bool)) string {
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
