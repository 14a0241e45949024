package pod

import "strings"

// Expand replaces $(NAME) in s by the value that lookup returns. $$ is an escaped dollar
// sign, so $$(NAME) becomes $(NAME). Unknown names and incomplete references are not
// changed.
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
